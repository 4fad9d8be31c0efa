"""What runs inside Redis: sweeping out the expired, and the verbs where a pipeline cannot do it.

Times that are compared here are 8 bytes, big end first, so that text order is time's order.
"""

from __future__ import annotations

__all__ = ["DELIVER", "EXPIRE", "PUBLISH", "SUBSCRIBE", "SWEEP"]

# A few keys at a time, as Redis's own expiry does it. ARGV: cursor, keys, now, now as bytes, the
# bucket of bodies that now is in.
SWEEP = b"""
local page = redis.call('SCAN', ARGV[1], 'COUNT', ARGV[2])
for _, key in ipairs(page[2]) do
  local kind = key:sub(1, 2)
  if kind == 's:' or kind == 'u:' then
    redis.call('ZREMRANGEBYSCORE', key, '-inf', ARGV[3])
  elseif kind == 'e:' then
    local gone = {}
    for _, member in ipairs(redis.call('ZRANGE', key, 0, -1)) do
      if member:sub(1, 8) <= ARGV[4] then
        gone[#gone + 1] = member
        if #gone == 1000 then redis.call('ZREM', key, unpack(gone)) gone = {} end
      end
    end
    if #gone > 0 then redis.call('ZREM', key, unpack(gone)) end
  elseif kind == 'b:' then
    if tonumber(key:sub(3)) < tonumber(ARGV[5]) then redis.call('UNLINK', key) end
  end
end
return page[1]
"""

# Keys of places on the map have their members once more by their end. KEYS: of the map; ARGV: now.
EXPIRE = b"""
for _, key in ipairs(KEYS) do
  local ends = 'x' .. key
  while true do
    local gone = redis.call('ZRANGEBYSCORE', ends, '-inf', ARGV[1], 'LIMIT', 0, 1000)
    if #gone == 0 then break end
    redis.call('ZREM', key, unpack(gone))
    redis.call('ZREM', ends, unpack(gone))
  end
end
"""

# With `unseen`: the subscriptions in order of arrival; one that asks for the unseen yields to an
# earlier one of its user; what a user got is kept as long as the event is valid.
# KEYS: subscriptions, events, bodies. ARGV: now, at, at as bytes, member, id, id as bytes, body,
# until.
PUBLISH = b"""
local found = {}
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. ARGV[1], '+inf')) do
  if member:sub(1, 8) <= ARGV[3] then found[#found + 1] = member end
end
table.sort(found, function(a, b) return a:sub(25, 39) < b:sub(25, 39) end)
local told, out = {}, {}
for _, member in ipairs(found) do
  local user = member:sub(17, 24)
  if not (told[user] and member:sub(40, 40) == '1') then out[#out + 1] = member:sub(9, 16) end
  if not told[user] then
    told[user] = true
    redis.call('ZADD', 'u:' .. user, ARGV[8], ARGV[6])
  end
end
redis.call('ZADD', KEYS[2], ARGV[2], ARGV[4])
redis.call('HSET', KEYS[3], ARGV[5], ARGV[7])
return table.concat(out)
"""

# KEYS: events, subscriptions, what the user has seen. ARGV: since, until, now as bytes, member,
# '1' for the unseen only.
SUBSCRIBE = b"""
local out = {}
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], ARGV[1], '(' .. ARGV[2])) do
  local ends, id = member:sub(1, 8), member:sub(9, 16)
  if ends > ARGV[3] and not (ARGV[5] == '1' and redis.call('ZSCORE', KEYS[3], id)) then
    out[#out + 1] = id
    redis.call('ZADD', KEYS[3], string.format('%d', struct.unpack('>l', ends)), id)
  end
end
local number = string.format('%015d', redis.call('INCR', 'arrivals'))
redis.call('ZADD', KEYS[2], ARGV[2], ARGV[4] .. number .. ARGV[5])
return table.concat(out)
"""

# Publish, and tell every subscription on its own channel. KEYS: subscriptions, events. ARGV: now,
# at as bytes, member, body.
DELIVER = b"""
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. ARGV[1], '+inf')) do
  if member:sub(1, 8) <= ARGV[2] then redis.call('PUBLISH', 'd:' .. member:sub(9, 16), ARGV[4]) end
end
redis.call('ZADD', KEYS[2], ARGV[1], ARGV[3])
"""
