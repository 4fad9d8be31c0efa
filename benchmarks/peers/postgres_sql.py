"""The SQL of a channel on PostgreSQL: two partitioned tables, and who answers whom.

    subs    place, [since, until), who    events   place, at, until, body
    both    seq: the place in the order of all operations; now: channel time when it arrived;
            bucket: a time at or after its end, one partition each

An operation is stored first and then looks at all that have a smaller `seq`: so the rows of a batch
see the earlier rows of the same batch and of all batches before it in the same way. A place is a
text key, or (shapes) the point of an event and the circle of a subscription.

`clock` has one row: channel time and the next `seq`. Whoever writes updates it first, so writers
come one after the other, and their order is the order of `seq`.

Circles: the bounds of a circle against points in a GiST index of PostGIS, then the distance by the
formula that Tideline has, on the same sphere. `ST_DWithin(geography, geography, m, false)` takes
6371008.771 m for the radius of the earth where Tideline takes 6371008.8, so the two may differ at
the rim.
"""

from __future__ import annotations

__all__ = ["Columns", "asked", "columns", "indexes", "live", "past", "schema"]

Columns = dict[str, str]
"""Names of columns with their types, in the order in which they are sent."""

_BOTH = {"id": "bigint", "seq": "bigint", "now": "bigint", "bucket": "bigint"}
_CIRCLE = dict.fromkeys(("lon", "lat", "radius", "w", "s", "e", "n"), "float8")


def columns(shapes: bool) -> dict[str, Columns]:
    """The columns of both tables."""
    text = {"place": "text"}
    subs = {"since": "bigint", "until": "bigint", "unseen": "bool", "username": "text"}
    events = {"at": "bigint", "until": "bigint", "body": "text"}
    return {
        "subs": _BOTH | subs | (_CIRCLE if shapes else text),
        "events": _BOTH | events | ({"lon": "float8", "lat": "float8"} if shapes else text),
    }


def asked(table: str, shapes: bool) -> tuple[str, ...]:
    """What a search is told of the new rows of a table."""
    if table == "events":
        return ("r", "id", "at", "now", *(("lon", "lat") if shapes else ("place",)))
    told = ("r", "id", "since", "until", "now", "unseen", "username")
    return (*told, *(_CIRCLE if shapes else ("place",)))


def indexes(shapes: bool) -> dict[str, str]:
    """How each table is searched."""
    if shapes:
        return {
            "subs": "using gist (st_makeenvelope(w, s, e, n))",
            "events": "using gist (st_makepoint(lon, lat))",
        }
    return {"subs": "using hash (place)", "events": "using hash (place)"}


def schema(shapes: bool) -> str:
    """Everything, made once in an empty database."""
    made = ["create extension postgis;" if shapes else ""]
    for table, names in columns(shapes).items():
        fields = ", ".join(f"{name} {kind} not null" for name, kind in names.items())
        made.append(f"create table {table} ({fields}) partition by list (bucket);")
        made.append(f"create index on {table} {indexes(shapes)[table]};")
    made.append("create table clock (newest bigint not null, seq bigint not null);")
    made.append("insert into clock values (-9223372036854775808, 0);")
    made.append(_METRES)
    made += [_one("publish", "events", shapes), _one("subscribe", "subs", shapes)]
    return "\n".join(made)


# The arithmetic of `haversine_m` in tideline.kernels.geo, in the same order.
_METRES = """
create function metres(lon1 float8, lat1 float8, lon2 float8, lat2 float8) returns float8
language sql immutable parallel safe as $$
select 2.0::float8 * 6371008.8::float8 * asin(sqrt(least(1.0::float8,
    sin((lat2 - lat1) * (pi() / 180.0::float8) * 0.5::float8)
  * sin((lat2 - lat1) * (pi() / 180.0::float8) * 0.5::float8)
  + (cos(lat1 * (pi() / 180.0::float8)) * cos(lat2 * (pi() / 180.0::float8)))
  * (sin((lon2 - lon1) * (pi() / 180.0::float8) * 0.5::float8)
   * sin((lon2 - lon1) * (pi() / 180.0::float8) * 0.5::float8)))))
$$;
"""


def live(rows: str, oldest: str, shapes: bool) -> str:
    """The subscriptions that each event `p` of `rows` answers: r, subscription, event."""

    def meets(sub: str) -> str:
        return _meets(sub, "p", shapes, f"st_makeenvelope({_bounds(sub)}) && point(p)")

    return f"""
select p.r, s.id as subscription, p.id as event
from {rows} p join subs s
  on {meets("s")} and s.seq < p.r and s.until > p.now and s.since <= p.at and s.until > p.at
where s.bucket > {oldest} and (not s.unseen or not exists (
  select from subs o
  where {meets("o")} and o.username = s.username and o.seq < s.seq
    and o.until > p.now and o.since <= p.at and o.until > p.at))
""".replace("point(p)", "st_makepoint(p.lon, p.lat)")


def past(rows: str, oldest: str, shapes: bool) -> str:
    """The events that answer each subscription `q` of `rows`: r, subscription, event."""
    point = "st_makepoint(e.lon, e.lat)"
    found = _meets("q", "e", shapes, f"{point} && st_makeenvelope({_bounds('q')})")
    had = _meets("o", "e", shapes, f"st_makeenvelope({_bounds('o')}) && {point}")
    return f"""
select q.r, q.id as subscription, e.id as event
from {rows} q join events e
  on {found} and e.seq < q.r and e.until > q.now and e.at >= q.since and e.at < q.until
where e.bucket > {oldest} and (not q.unseen or not exists (
  select from subs o
  where {had} and o.username = q.username and o.seq < q.r
    and o.since <= e.at and o.until > e.at
    and case when o.seq < e.seq then o.until > e.now else e.until > o.now end))
"""


def _meets(sub: str, event: str, shapes: bool, boxes: str) -> str:
    if not shapes:
        return f"{sub}.place = {event}.place"
    far = f"metres({sub}.lon, {sub}.lat, {event}.lon, {event}.lat)"
    return f"{boxes} and {far} <= {sub}.radius"


def _bounds(sub: str) -> str:
    return f"{sub}.w, {sub}.s, {sub}.e, {sub}.n"


def _one(verb: str, table: str, shapes: bool) -> str:
    """A function that stores one operation and returns the ids that it is answered with."""
    names = {n: t for n, t in columns(shapes)[table].items() if n not in ("seq", "now")}
    arguments = ", ".join(f"a_{name} {kind}" for name, kind in names.items())
    moved = "a_at" if verb == "publish" else "a_arrived"
    extra = "" if verb == "publish" else ", a_arrived bigint"
    given = ", ".join(f"a_{name} as {name}" for name in names)
    row = f"(select v_seq as r, v_now as now, {given})"
    search = (live if verb == "publish" else past)(row, "v_now", shapes)
    wanted = "subscription" if verb == "publish" else "event"
    return f"""
create function {verb}({arguments}{extra}) returns bigint[] language plpgsql
set plan_cache_mode = force_generic_plan as $$
declare v_seq bigint; v_now bigint; v_found bigint[];
begin
  update clock set newest = greatest(newest, {moved}), seq = seq + 1
    returning newest, seq - 1 into v_now, v_seq;
  insert into {table} ({", ".join(names)}, seq, now)
    values ({", ".join("a_" + name for name in names)}, v_seq, v_now);
  select array_agg({wanted}) into v_found from ({search}) a;
  return v_found;
end $$;
"""
