"""Where a client asks next, and how soon: several servers, of which one leads."""

from __future__ import annotations

from tideline.client.places import Places

URLS = [f"http://127.0.0.{n}:8080" for n in (1, 2, 3)]


def test_waits_grow_where_nobody_answers_and_stay_short_where_none_leads() -> None:
    places = Places(URLS, {}, None)
    spans = places.waits()
    waited = [next(spans) for _ in range(12)]
    assert waited[0] == 0
    assert 1 <= waited[-1] <= 2
    for n in range(12):
        places.elsewhere(places.here(), None)  # it answers, and does not lead
        assert places.here().url == URLS[(n + 1) % 3]
        assert 0 < next(spans) <= 0.1


def test_a_node_that_names_the_leader_is_believed_also_where_nobody_knew_of_it() -> None:
    places = Places(URLS[0], {}, None)
    places.elsewhere(places.here(), URLS[1] + "/")
    assert (places.here().url, len(places)) == (URLS[1], 2)
    places.elsewhere(places.here(), URLS[0])
    assert (places.here().url, len(places)) == (URLS[0], 2)


def test_a_connection_may_take_long_only_where_there_is_no_other_server() -> None:
    places = Places(URLS[0], {}, None)
    assert places.here().endpoint.connect_s > 1000
    places.elsewhere(places.here(), URLS[1])
    for _ in range(2):
        assert places.here().endpoint.connect_s < 2
        places.leave(places.here())
