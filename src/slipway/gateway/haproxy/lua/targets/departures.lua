-- Detects that the client of a waiting request has disconnected.
--
-- HAProxy does not read from a client while a rule waits, so it does not notice. The kernel's list of connections shows
-- it: a connection that the client closed is half closed, and one that it reset is missing.

local REFRESH_SECONDS = 0.5   -- seconds between two reads of the kernel's list
local ABORTED_SECONDS = 5     -- seconds after which a read must have been aborted
local FORGET_SECONDS = 10     -- seconds after the last query for a connection until it is forgotten
local MOST_MISSES = 2         -- consecutive reads without the connection: a read is not atomic, so it may miss one

local FILES = {"/proc/net/tcp", "/proc/net/tcp6"}
local CONNECTION = "^ *%d+: %x+:%x+ (%x+)(:%x+) (%x%x) "   -- client's address and port, state
local HALF_CLOSED = "08"
local ABSENT = 2      -- error code of a missing file, such as that of IPv6 in a kernel without IPv6
local IPV4_MAPPED = "^0000000000000000FFFF0000"

-- connection -> {queried_at = time of the last query, family, is_listed = whether the list contains it while it is
-- open, misses = consecutive reads without it, is_closed}. HAProxy may interrupt a read to run other requests, so new
-- connections are first added to a separate table.
local watched, arrived = {}, {}
-- Families with at least one of our connections in the list. Without any, the list is useless, for example in a
-- sandbox.
local listed = {}
local refreshed_at, refreshing = 0, false

-- Returns four bytes in the kernel's format: a number in this machine's byte order.
local function word(...)
    return ("%08X"):format(string.unpack("=I4", string.char(...)))
end

local function append_groups(groups, text)
    for group in text:gmatch("%x+") do groups[#groups + 1] = tonumber(group, 16) end
end

local function ipv6_words(address)
    local before, after = address:match("^(.-)::(.*)$")
    local groups, last = {}, {}
    append_groups(groups, before or address)
    append_groups(last, after or "")
    for _ = #groups + #last + 1, 8 do groups[#groups + 1] = 0 end
    table.move(last, 1, #last, #groups + 1, groups)
    local words = {}
    for at = 1, 8, 2 do
        local high, low = groups[at], groups[at + 1]
        words[#words + 1] = word(high >> 8, high & 255, low >> 8, low & 255)
    end
    return table.concat(words)
end

-- Returns an address in the kernel's format. On a listener for both families, IPv4 addresses are mapped to IPv6.
local function words_of(address)
    local a, b, c, d = address:match("(%d+)%.(%d+)%.(%d+)%.(%d+)$")
    return a and word(a, b, c, d) or ipv6_words(address)
end

-- Returns the states of the watched connections; nil if the list cannot be read.
local function read_states()
    local current = {}
    for _, name in ipairs(FILES) do
        local file, _, code = io.open(name)
        if not file and code ~= ABSENT then return nil end
        if file then
            for line in file:lines() do
                local address, port, state = line:match(CONNECTION)
                local connection = address and address:gsub(IPV4_MAPPED, "") .. port
                if connection and watched[connection] then current[connection] = state end
            end
            file:close()
        end
    end
    return current
end

local function refresh(now)
    local new = arrived
    arrived = {}
    for connection, client in pairs(new) do watched[connection] = client end
    local current = read_states()
    for connection, client in pairs(watched) do
        local state = current and current[connection]
        client.is_closed = state == HALF_CLOSED
        if state then
            client.is_listed, client.misses, listed[client.family] = true, 0, true
        elseif current then
            client.misses = client.misses + 1
        end
        if now - client.queried_at > FORGET_SECONDS then watched[connection] = nil end
    end
end

local departures = {}

-- Starts to watch the connection of a request. Returns its name for `has_left`. In a hop, the previous frontend passes
-- the client's address, which may be behind a trusted proxy. Such a connection only counts after the list has contained
-- it.
function departures.watch(txn, now)
    local address, port = txn.f:fc_src(), txn.f:fc_src_port()
    local is_listed = address ~= nil
    if not is_listed then address, port = txn.f:src(), txn.f:src_port() end
    local words = words_of(tostring(address))
    local connection = ("%s:%04X"):format(words, port or 0)
    arrived[connection] = {queried_at = now, family = #words, is_listed = is_listed, misses = 0, is_closed = false}
    return connection
end

function departures.has_left(connection, now)
    local client = arrived[connection] or watched[connection]
    if not client then return false end
    client.queried_at = now
    if now - refreshed_at >= (refreshing and ABORTED_SECONDS or REFRESH_SECONDS) then
        refreshed_at, refreshing = now, true
        refresh(now)
        refreshing = false
    end
    return client.is_closed or (client.is_listed and listed[client.family] and client.misses >= MOST_MISSES)
end

return departures
