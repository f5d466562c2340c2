-- Bounds the memory that request bodies take while they are read.
--
-- Only bodies that do not fit an ordinary buffer come here. Each one is counted before a large buffer is taken for it, with
-- the size that was announced (a chunked body: the largest that is allowed). A request that ends on the way runs no more
-- rules, so nothing here would hear of it. But its ticket is also the key of a stick table in which HAProxy itself counts:
-- an entry that no stream tracks belongs to a request that is gone, and one with a gpc to a body that is whole. Tickets are
-- compared with the table when there is no room, so what is counted is exact whenever it matters, and costs little.
--
-- A request without room waits for it for a moment, with no more than an ordinary buffer; then it gets a 429. One client
-- may have half of the bytes, so that it cannot keep all others out.
--
-- Loaded once for all threads, so that the limits hold for the process. Arguments: bytes that all bodies may have; the
-- largest body; bytes that HAProxy's buffers may have in use (0: not bounded); size of a large buffer.

local most_bytes, largest, most_pooled, large_buffer = ...
most_bytes, largest = tonumber(most_bytes), tonumber(largest)
most_pooled, large_buffer = tonumber(most_pooled), tonumber(large_buffer)

local client_of = require("client").of
local refusals = require("refusals")

local WAIT = 5                -- seconds that a request waits for room
local POLL = 25               -- milliseconds between two looks
local QUEUE = 500             -- requests that may wait for room at a time
local SWEEP = 0.1             -- seconds between two comparisons with the table, unless
local MANY_ARRIVED = 16               -- so many tickets came since the last one
local USUAL_AGE = 0.1             -- seconds for which is believed what HAProxy says of its buffers: asking costs much. But
local FULL_AGE = 0.005           -- where there was no room, it is asked again after so many

local bodies = {}             -- ticket -> {size, client}
local bytes = 0
local bytes_of = {}           -- client -> bytes
local queue = {}              -- ticket -> true, of requests that wait for room
local queued = 0
local swept_at, arrived = 0, 0
local pooled, pooled_at = 0, 0   -- bytes of all buffers in use, not less than there are, and when HAProxy was asked
local refused = 0            -- how many were turned away

local function clock()
    local now = core.now()
    return now.sec + now.usec / 1000000
end

local function free(ticket)
    local body = bodies[ticket]
    if not body then return end
    bodies[ticket] = nil
    bytes = bytes - body.size
    local remaining = bytes_of[body.client] - body.size
    bytes_of[body.client] = remaining > 0 and remaining or nil
end

local function leave_queue(ticket)
    if queue[ticket] then
        queue[ticket] = nil
        queued = queued - 1
    end
end

-- Gives back the tickets of requests that are gone.
local function sweep(now)
    swept_at, arrived = now, 0
    local table = core.proxies.bodies.stktable
    for ticket in pairs(bodies) do
        local entry = table:lookup(ticket)
        if not entry or entry.conn_cur == 0 or entry.gpc0 > 0 then free(ticket) end
    end
    for ticket in pairs(queue) do
        local entry = table:lookup(ticket)
        if not entry or entry.conn_cur == 0 then leave_queue(ticket) end
    end
end

-- Whether HAProxy has room for one more large buffer. Those that were given out since it was asked are counted here.
local function buffer_fits()
    if most_pooled == 0 then return true end
    local now = clock()
    if now - pooled_at > (pooled + large_buffer > most_pooled and FULL_AGE or USUAL_AGE) then
        pooled, pooled_at = core.get_info().PoolUsed_bytes, now
    end
    return pooled + large_buffer <= most_pooled
end

local function fits(client, size)
    local own = bytes_of[client] or 0
    return bytes + size <= most_bytes and (own == 0 or own + size <= most_bytes / 2)
        and buffer_fits()
end

local function has_room(client, size, now)
    if fits(client, size) then return true end
    if now - swept_at < SWEEP and arrived < MANY_ARRIVED then return false end
    sweep(now)
    return fits(client, size)
end

-- Waits for room: whether there is some now.
local function wait_for_room(ticket, client, size)
    if fits(client, size) then return true end
    local now = clock()
    if has_room(client, size, now) then return true end
    if queued >= QUEUE then return false end
    queue[ticket] = true
    queued = queued + 1
    local deadline, has_space = now + WAIT, false
    while now < deadline and not has_space do
        core.msleep(POLL)
        now = clock()
        has_space = has_room(client, size, now)
    end
    leave_queue(ticket)
    return has_space
end

-- The size that counts. A chunked body may become as large as is allowed, whatever of it is here.
local function announced_size(txn)
    return tonumber(txn.f:req_fhdr("content-length")) or largest
end

local function begin_body(txn)
    local ticket, client, size = txn:get_var("txn.ticket"), client_of(txn), math.min(announced_size(txn), largest)
    if not wait_for_room(ticket, client, size) then
        refused = refused + 1
        return refusals.answer(txn, "crowded")
    end
    arrived = arrived + 1
    pooled = pooled + large_buffer
    bodies[ticket] = {size = size, client = client}
    bytes = bytes + size
    bytes_of[client] = (bytes_of[client] or 0) + size
end

-- "show slipway bodies" on the command socket: bodies that are read, their bytes, requests that were refused.
local function show(applet)
    sweep(clock())
    local count = 0
    for _ in pairs(bodies) do count = count + 1 end
    applet:send(("%d %d %d\n"):format(count, bytes, refused))
end

core.register_action("begin_body", {"http-req"}, begin_body)
core.register_cli({"show", "slipway", "bodies"}, "show slipway bodies : large bodies that are being read", show)
