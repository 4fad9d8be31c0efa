"""Running a server: health, metrics, logs, a graceful stop, backup and restore, the commands."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from certificates import certificate
from ports import free_port
from talk import Api, Talk
from test_resume import end
from websockets.exceptions import ConnectionClosed

import tideline
from tideline.cli.backup import _unpack
from tideline.cli.main import main
from tideline.errors import Unavailable
from tideline.server import running
from tideline.server.metrics import BUCKETS_S
from tideline.server.tokens import Tokens


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


Command = Callable[..., Done]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """`command("token", "list", ...)`: the command line, in this process."""

    def run(*words: str) -> Done:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(list(words))
        out, err = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Done(ended.value.code, out, err)

    return run


def test_health(serve: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    database, url = serve()
    channel = database.channel("c")
    assert Api(url).get("/healthz").json == {"ok": True}
    log = channel.core.engine.store.log
    monkeypatch.setattr(log, "_refusal", (tideline.Unavailable, "an fsync failed"))
    sick = Api(url).get("/healthz")
    assert (sick.status, sick.json) == (503, {"ok": False})
    monkeypatch.undo()
    assert Api(url).get("/healthz").status == 200


def samples(text: str) -> dict[str, float]:
    """Prometheus text, read strictly: every line is a comment or a sample."""
    found = {}
    for line in text.splitlines():
        if line.startswith("# HELP ") or line.startswith("# TYPE "):
            continue
        match = re.fullmatch(
            r'([a-z_]+(?:\{(?:[a-z]+="(?:[^"\\]|\\.)*",?)*\})?) ([-+0-9.e]+)', line
        )
        assert match, line
        assert match[1] not in found
        found[match[1]] = float(match[2])
    return found


def test_metrics_count_what_happened(serve: Callable[..., Any]) -> None:
    database, url = serve()
    channel = database.channel('odd "name" \\')
    with Talk(url) as talk:
        talk.say(do="subscribe", tag=1, channel=channel.name, place="a", user="u")
        talk.hear_until("past_done")
        for n in range(5):
            channel.publish("a", n, ttl_s=60)
        assert len(talk.sync()) == 5
        Api(url).get("/v1/channels")
        found = samples(Api(url).get("/metrics").body.decode())
    label = r'{channel="odd \"name\" \\"}'
    assert found[f"tideline_events{label}"] == 5
    assert found[f"tideline_subscriptions{label}"] == 1
    assert found[f"tideline_answers_total{label}"] == 5
    assert found[f"tideline_components{label}"] == 0
    assert found[f"tideline_log_lag_bytes{label}"] > 100
    assert found["tideline_connections"] == 1
    assert found["tideline_outbox_messages"] == 0
    assert found["tideline_delivered_total"] == 5
    assert found["tideline_delivery_seconds_count"] == 5
    assert found['tideline_delivery_seconds_bucket{le="+Inf"}'] == 5
    buckets = [found[f'tideline_delivery_seconds_bucket{{le="{b}"}}'] for b in BUCKETS_S]
    assert buckets == sorted(buckets)
    assert 0 < found["tideline_delivery_seconds_sum"] < 5
    requests = 'tideline_requests_total{method="GET",path="/v1/channels",status="200"}'
    assert found[requests] == 1


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Callable[..., tuple[Any, str]]]:
    """`tideline serve` in a process of its own; (process, address)."""
    started: list[subprocess.Popen[str]] = []

    def start(*options: str) -> tuple[Any, str]:
        command = [sys.executable, "-m", "tideline", "serve", str(tmp_path / "data"), "--port", "0"]
        with (tmp_path / "log").open("w") as log:
            made = subprocess.Popen(
                [*command, *options], stdout=subprocess.PIPE, stderr=log, text=True
            )
        started.append(made)
        assert made.stdout is not None
        line = made.stdout.readline()
        assert "serving at" in line, (tmp_path / "log").read_text()
        return made, line.split()[-1]

    yield start
    for made in started:
        end(made)


@pytest.mark.parametrize("tls", [False, True])
def test_the_images_health_check_finds_the_server_at_any_port_and_with_tls(
    process: Callable[..., Any], tmp_path: Path, tls: bool
) -> None:
    """It asked port 8080 by plain HTTP, whatever the command of the container was."""
    script = Path(__file__).resolve().parents[2] / "scripts" / "healthcheck.py"
    options = ["--port", str(free_port())]
    if tls:
        cert, key = certificate(tmp_path)
        options += ["--tls-cert", str(cert), f"--tls-key={key}"]
    server, _ = process(*options)

    def check(pid: int) -> int:
        # No variable of a proxy may lead it astray.
        environment = {**os.environ, "http_proxy": "http://127.0.0.1:9"}
        return subprocess.run(
            [sys.executable, str(script), str(pid)], env=environment, stderr=subprocess.DEVNULL,
            check=False,
        ).returncode  # fmt: skip

    assert check(server.pid) == 0
    assert check(os.getpid()) == 0  # no server: nothing is wrong with it
    os.kill(server.pid, signal.SIGSTOP)
    try:
        assert check(server.pid) == 1
    finally:
        os.kill(server.pid, signal.SIGCONT)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_finishes_what_was_acknowledged(
    number: int, process: Callable[..., Any], tmp_path: Path
) -> None:
    running, url = process()
    Api(url).put("/v1/channels/c")
    acknowledged: list[int] = []
    with Talk(url) as follower, Talk(url) as publisher:
        follower.say(do="subscribe", tag=1, channel="c", place="a", user="u", id="s", until_s=600)
        follower.hear_until("past_done")

        def publish() -> None:
            n = 0
            try:
                while True:
                    publisher.say(do="publish", tag=n, channel="c", place="a", body=n, ttl_s=600)
                    if "told" in publisher.hear():
                        acknowledged.append(n)
                        n += 1
            except ConnectionClosed:
                pass

        thread = threading.Thread(target=publish)
        thread.start()
        heard = [follower.hear() for _ in range(100)]
        running.send_signal(number)
        rest, code = follower.hear_close()
        assert code == 1012
        heard += [message for message in rest if "event" in message]
        got = [message["event"]["body"] for message in heard]
        token = heard[-1]["token"]
        thread.join()
    assert running.wait(timeout=30) == 0
    with tideline.open(tmp_path / "data") as database:
        got += [event.body for event in database.channel("c").resume("s", token).past]
        database.check()
    assert got == list(range(len(got)))
    assert set(acknowledged) <= set(got)
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert (lines[0]["event"], lines[-1]["event"]) == ("start", "stop")
    assert {"connected", "disconnected"} <= {line["event"] for line in lines}
    assert all({"time", "level", "event"} <= line.keys() for line in lines)


def test_a_stop_does_not_wait_for_a_reader_for_ever(process: Callable[..., Any]) -> None:
    running, url = process()
    api = Api(url)
    api.put("/v1/channels/c")
    api.post("/v1/channels/c/subscriptions", {"place": "a", "user": "u", "id": "s"})
    streaming = subprocess.Popen(
        ["curl", "-sN", f"{url}/v1/channels/c/subscriptions/s/stream"], stdout=subprocess.PIPE
    )
    assert streaming.stdout is not None
    while b"past_done" not in streaming.stdout.readline():
        pass
    running.send_signal(signal.SIGTERM)
    assert running.wait(timeout=30) == 0
    streaming.communicate(timeout=30)
    assert streaming.returncode == 0  # the stream ended well


def test_backup_of_a_running_server_and_restore(
    process: Callable[..., Any],
    tmp_path: Path,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "data").mkdir()
    text, _ = Tokens(tmp_path / "data").create(["admin"])
    _, url = process()
    api = Api(url, text)
    api.put("/v1/channels/c")
    for n in range(50):
        api.post("/v1/channels/c/events", {"place": "a", "body": n, "ttl_s": 600})
    stop = threading.Event()

    def publish() -> None:
        n = 50
        while not stop.is_set():
            api.post("/v1/channels/c/events", {"place": "a", "body": n, "ttl_s": 600})
            n += 1

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        monkeypatch.setenv("TIDELINE_TOKEN", text)
        done = command("backup", url, str(tmp_path / "copy"))
    finally:
        stop.set()
        thread.join()
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "data" / "channels").glob("backup-*")) == []
    restored = command("restore", str(tmp_path / "copy"), str(tmp_path / "fresh"))
    assert restored.returncode == 0, restored.stderr
    with tideline.open(tmp_path / "fresh") as database:
        found = sorted(event.body for event in database.channel("c").find("a"))
    assert found == list(range(len(found)))
    assert len(found) >= 50
    assert Tokens(tmp_path / "fresh").match(text) is not None
    for folder in ("copy", "fresh"):  # hashes, and still nobody else's to read
        assert (tmp_path / folder / "TOKENS").stat().st_mode & 0o077 == 0
    # And what goes wrong.
    again = command("backup", url, str(tmp_path / "copy"), "--token", text)
    assert (again.returncode, "holds a database: give a new" in again.stderr) == (2, True)
    refused = command("backup", url, str(tmp_path / "other"), "--token", "wrong")
    assert (refused.returncode, "token" in refused.stderr) == (2, True)
    owned = command("backup", str(tmp_path / "data"), str(tmp_path / "other"))
    assert owned.returncode == 5
    assert f"give its address, {url}" in owned.stderr
    assert not (tmp_path / "other").exists()
    nothing = command("backup", "http://127.0.0.1:9", str(tmp_path / "other"))
    assert (nothing.returncode, "the server cannot be reached" in nothing.stderr) == (5, True)
    assert command("restore", str(tmp_path), str(tmp_path / "x")).returncode == 3
    full = command("restore", str(tmp_path / "copy"), str(tmp_path / "fresh"))
    assert full.returncode == 2


def test_backup_of_a_server_with_its_own_certificate(
    serve: Callable[..., Any], tmp_path: Path, command: Command
) -> None:
    cert, key = certificate(tmp_path)
    database, url = serve(tls_cert=cert, tls_key=key)
    database.channel("c").publish("a", 1, id="e")
    copy = tmp_path / "copy"
    refused = command("backup", url, str(copy))
    assert (refused.returncode, "the server cannot be reached" in refused.stderr) == (5, True)
    assert "CERTIFICATE_VERIFY_FAILED" in refused.stderr
    wrong = command("backup", url, str(copy), "--ca", str(key))
    assert (wrong.returncode, "a file with certificates" in wrong.stderr) == (2, True)
    assert not copy.exists()
    done = command("backup", url, str(copy), "--ca", str(cert))
    assert done.returncode == 0, done.stderr
    with tideline.open(copy) as found:
        assert [event.id for event in found.channel("c").find("a")] == ["e"]


def test_a_backup_that_breaks_off_is_told_from_a_server_that_is_not_there(
    tmp_path: Path, command: Command
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                head = tarfile.TarInfo("MANIFEST").tobuf(tarfile.USTAR_FORMAT)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n" + head)

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        done = command("backup", url, str(tmp_path / "copy"))
        thread.join()
    assert (done.returncode, "the backup did not arrive whole" in done.stderr) == (5, True)
    gone = command("backup", url, str(tmp_path / "copy"))
    assert (gone.returncode, "the server cannot be reached" in gone.stderr) == (5, True)
    assert list(tmp_path.iterdir()) == []


def test_the_manifest_is_the_last_of_a_backup(guarded: dict[str, Any]) -> None:
    """So that one that breaks off anywhere has none: without the tokens it would be open."""
    sent = Api(guarded["url"], guarded["admin"]).get("/v1/backup").body
    with tarfile.open(fileobj=io.BytesIO(sent)) as archive:
        names = archive.getnames()
    assert names.index("TOKENS") < names.index("MANIFEST") == len(names) - 1


def test_backup_of_a_folder(tmp_path: Path, command: Command) -> None:
    with tideline.open(tmp_path / "data") as database:
        database.channel("c").publish("a", 1, id="e")
    done = command("backup", str(tmp_path / "data"), str(tmp_path / "copy"))
    assert done.returncode == 0, done.stderr
    with tideline.open(tmp_path / "copy") as database:
        assert [event.id for event in database.channel("c").find("a")] == ["e"]


def test_a_damaged_backup_is_not_restored(tmp_path: Path, command: Command) -> None:
    with tideline.open(tmp_path / "data") as database:
        database.channel("c").publish("a", 1, id="e")
        database.channel("c").seal()
        database.backup(tmp_path / "copy")
    [component] = (tmp_path / "copy").rglob("*.arrow")
    data = bytearray(component.read_bytes())
    data[len(data) // 2] ^= 1
    component.unlink()  # it is a link to the original
    component.write_bytes(data)
    done = command("restore", str(tmp_path / "copy"), str(tmp_path / "fresh"))
    assert done.returncode == 6
    assert not (tmp_path / "fresh").exists()
    with tideline.open(tmp_path / "data") as database:
        database.check()


@pytest.mark.parametrize(
    ("name", "kind"),
    [("../evil", b"0"), ("/etc/evil", b"0"), ("channels/0001/x", b"0"), ("MANIFEST", b"2"),
     ("channels/0001/../../evil", b"0")],
)  # fmt: skip
def test_a_backup_from_a_wrong_server_writes_nothing(
    name: str, kind: bytes, tmp_path: Path, command: Command
) -> None:
    """What a server sends is not trusted: names that lead elsewhere, links."""
    import http.server
    import io
    import tarfile

    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        info = tarfile.TarInfo(name)
        info.type = kind
        info.size = 4 if kind == b"0" else 0
        info.linkname = "/etc/passwd" if kind == b"2" else ""
        tar.addfile(info, io.BytesIO(b"evil"))

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(archive.getvalue())

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        done = command("backup", url, str(tmp_path / "in" / "copy"))
        thread.join()
    assert done.returncode == 5, done.stderr
    assert list(tmp_path.iterdir()) in ([], [tmp_path / "in"])
    assert not (tmp_path / "in" / "copy").exists()


def test_the_token_commands(tmp_path: Path, command: Command) -> None:
    folder = str(tmp_path / "data")
    made = command("token", "create", folder, "--scope", "read", "--scope",
                            "publish:roads", "--user", "ann", "--name", "page")  # fmt: skip
    document = json.loads(made.stdout)
    assert document["scopes"] == ["read", "publish:roads"]
    listed = command("token", "list", folder)
    [row] = [json.loads(line) for line in listed.stdout.splitlines()]
    assert (row["id"], row["user"], row["name"]) == (document["id"], "ann", "page")
    assert document["token"].split("_", 2)[2] not in listed.stdout
    assert command("token", "revoke", folder, row["id"]).returncode == 0
    assert command("token", "revoke", folder, row["id"]).returncode == 3
    assert command("token", "create", folder, "--scope", "rite").returncode == 2
    assert command("token", "create", folder).returncode == 2


def test_a_token_is_made_in_a_folder_only(tmp_path: Path, command: Command) -> None:
    done = command("token", "create", "http://127.0.0.1:8080", "--scope", "read")
    assert (done.returncode, "give the folder" in done.stderr, done.stdout) == (2, True, "")
    assert not Path("http:").exists()


def test_a_wrong_token_command_says_what_to_do(tmp_path: Path, command: Command) -> None:
    folder = tmp_path / "data"
    for options, said in [
        (["--scope", "reed"], "one of read, publish, subscribe, write, admin"),
        (["--scope", "read,publish"], "give several one by one"),
        (["--scope", "read:*"], "takes no patterns: for all channels write read"),
        (["--scope", "read:a/b"], "without '/'"),
        (["--scope", "read", "--user", ""], "user must be 1 to 256 bytes"),
        (["--scope", "read", "--user", "\udcff"], "user is not valid text"),
    ]:
        done = command("token", "create", str(folder), *options)
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr
        assert not folder.exists()
    done = command("token", "create", str(folder), "--scope", "read")
    assert (done.returncode, "no database in" in done.stderr) == (0, True)
    with tideline.open(folder) as database:
        database.channel("roads")
        done = command("token", "create", str(folder), "--scope", "read:raods")
        assert (done.returncode, "'raods' yet" in done.stderr) == (0, True), done.stderr
        done = command("token", "create", str(folder), "--scope", "read:roads")
        assert (done.returncode, done.stderr) == (0, "")
    done = command("token", "revoke", str(folder), "x")
    assert (done.returncode, "`tideline token list`" in done.stderr) == (3, True)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "todo.txt").write_text("milk")
    for words in (["list", "notes"], ["revoke", "notes", "x"]):
        done = command("token", words[0], str(tmp_path / "notes"), *words[2:])
        assert (done.returncode, "no database in this folder" in done.stderr) == (3, True)
    assert [path.name for path in (tmp_path / "notes").iterdir()] == ["todo.txt"]


def test_serve_refuses_what_is_wrong(tmp_path: Path, command: Command) -> None:
    folder = str(tmp_path / "data")
    for options in (["--host", "0.0.0.0"], ["--tls-cert", "x"], ["--log", "loud"], ["--rate", "0"],
                    ["--port", "99999"]):  # fmt: skip
        done = command("serve", folder, *options)
        assert done.returncode == 2, options
        assert done.stderr.startswith("tideline: InvalidRequest: "), done.stderr


def test_token_commands_on_what_is_no_folder(tmp_path: Path, command: Command) -> None:
    for words in (["list"], ["revoke"]):
        where = [str(tmp_path / "nothing"), *(["x"] if words == ["revoke"] else [])]
        done = command("token", *words, *where)
        assert (done.returncode, "no such folder" in done.stderr) == (3, True)
    assert not (tmp_path / "nothing").exists()
    (tmp_path / "file").write_text("x")
    done = command("token", "create", str(tmp_path / "file"), "--scope", "read")
    assert (done.returncode, "not a folder" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    "options",
    [["--body-mb", "nan"], ["--batch-mb", "inf"], ["--body-mb", "-1"], ["--rate", "nan"],
     ["--head-timeout", "0"], ["--origin", "*"], ["--allow-host", "http://x"], ["--port", "-1"],
     ["--log", "loud"]],
)  # fmt: skip
def test_wrong_options_of_serve_are_refused(
    options: list[str], tmp_path: Path, command: Command
) -> None:
    done = command("serve", str(tmp_path / "data"), *options)
    assert (done.returncode, "InvalidRequest" in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(
    "option", ["--rate", "--connections", "--subscriptions", "--head-timeout", "--body-mb"]
)
def test_serve_names_the_option_that_is_wrong(
    option: str, tmp_path: Path, command: Command
) -> None:
    done = command("serve", str(tmp_path / "data"), option, "0")
    assert done.returncode == 2
    assert done.stderr.startswith(f"tideline: InvalidRequest: {option} must be a positive number.")


@pytest.mark.parametrize("blocks", range(1, 41))
def test_a_backup_of_any_length_is_unpacked(blocks: int, tmp_path: Path) -> None:
    """Wherever its end falls among the records in which a tar file is read."""
    data = bytes(range(256)) * 2 * blocks
    info = tarfile.TarInfo("MANIFEST")
    info.size = len(data)
    sent = info.tobuf(tarfile.USTAR_FORMAT) + data + bytes(1024)
    _unpack(io.BytesIO(sent), tmp_path / "copy")
    assert (tmp_path / "copy" / "MANIFEST").read_bytes() == data
    with pytest.raises((Unavailable, tarfile.TarError)):
        _unpack(io.BytesIO(sent[: 512 + len(data) // 2]), tmp_path / "cut")


def test_a_folder_that_is_served_says_where(tmp_path: Path) -> None:
    def in_process(*words: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "tideline", *words]
        return subprocess.run(line, capture_output=True, text=True, check=False)

    folder = tmp_path / "data"
    with tideline.open(folder) as database:
        database.channel("c")
        with running(database) as url, pytest.raises(Unavailable, match="connect to its url") as no:
            tideline.open(folder)
        assert no.value.values["url"] == url
        with running(database) as url:
            done = in_process("publish", str(folder), "c", "a", "1")
            assert (done.returncode, "tideline serve" in done.stderr) == (5, True)
            assert f"give its address, {url}" in done.stderr
        # It is no server any more, but still somebody's.
        done = in_process("publish", str(folder), "c", "a", "1")
        assert (done.returncode, "tideline session" in done.stderr) == (5, True)
        assert url not in done.stderr
    done = in_process("publish", str(folder), "c", "a", "1")
    assert done.returncode == 0, done.stderr
