-- Enforces the limits of requests and tokens of keys and subjects, which all gateways share.
--
-- Counts the requests of each holder. The control process reads the counts, gets the use at other gateways, and grants
-- each holder a number of further requests (ledger.py). Only this process has counts and grants, so after a restart no
-- request passes before a new grant. A request therefore waits briefly if the holder is new, has just got a limit, or
-- if other gateways may return a part of the limit.
--
-- An entry is deleted when the control process has counted all its requests, so each request counts exactly once.
--
-- Loaded once for all threads. Sets txn.counted for each request that may continue, and txn.left_requests and
-- txn.left_tokens for headers of the answer.

local names = require("names")
local refusals = require("refusals")

local WAIT_MILLISECONDS = 2000       -- maximum wait of a request
local STEP, LONGEST_STEP = 10, 100   -- milliseconds between its first checks, and between later ones
local MOST_WAITING = 100             -- requests of one holder that wait; further ones are refused
local MOST_HOLDERS = 20000
local STALE_SECONDS = 10      -- without a request for this long, the control process does not run
local WAITING_SECONDS = 0.2   -- a request waits if its last check was within this time
local LONGEST = 61            -- maximum seconds until the last minute has room, even if clocks differ
local FIELDS = {
    "alone", "minute_until", "minute_zero", "minute_frees", "tokens_rest", "tokens_free", "day_until", "day_zero",
    "day_tokens_rest", "day_ends",
}

local holders = {}   -- name -> entry
local entries = {}   -- all entries, in any order
local changed = {}   -- name -> entry, for changes since the last request of the control process
local births = 0
local polled_at = 0                   -- time of the last request of the control process

local function clock()
    local now = core.now()
    return now.sec + now.usec / 1000000
end

local boot = ("%x."):format(math.floor(clock() * 1000000))

-- Returns the holder's entry; nil if there is no room for a new one.
local function get_entry(name)
    local entry = holders[name]
    if not entry then
        if #entries >= MOST_HOLDERS then return nil end
        births = births + 1
        entry = {name = name, birth = boot .. births, requests = 0, places = {}, waiting = 0, waited = 0, index = #entries + 1}
        holders[name], entries[entry.index] = entry, entry
    end
    return entry
end

local function remove(entry)
    local last = entries[#entries]
    entries[entry.index], last.index = last, entry.index
    entries[#entries] = nil
    holders[entry.name], changed[entry.name] = nil, nil
end

local function parse_limits(text)
    local list = {}
    for field in text:gmatch("([^:]*):?") do list[#list + 1] = tonumber(field) or false end
    return {requests = list[1], tokens = list[2], at_once = list[3], requests_day = list[4], tokens_day = list[5]}
end

-- Whether the gateway's equal part of the limit is used up. Without a control process, each gateway counts its own
-- requests in each minute.
local function is_beyond_part(entry, grant, now)
    local minute = now // 60
    if entry.minute ~= minute then entry.minute, entry.since = minute, entry.requests end
    return entry.requests - entry.since >= (grant.alone or 0)
end

-- Returns the limit that a request would exceed, and whether it should wait: the grant has not arrived yet, or other
-- gateways may return a part of the limit. Limits per day come first, so that a client learns that the day is used up.
local function check_limits(limits, entry, now)
    local grant = entry.grant
    if not grant then return "unknown", true end
    local stale, today = now - polled_at > STALE_SECONDS, now < grant.day_ends
    local short
    if limits.requests_day then
        if not grant.day_until or not today then return "unknown", true end
        if entry.requests >= grant.day_zero then return "requests_day", false end
        if entry.requests >= grant.day_until then short = "requests_day" end
    end
    if limits.tokens_day then
        if not grant.day_tokens_rest or not today then return "unknown", true end
        if grant.day_tokens_rest <= 0 then return "tokens_day", false end
    end
    if limits.requests then
        if not grant.minute_until then return "unknown", true end
        if stale then
            if is_beyond_part(entry, grant, now) then return "requests", false end
        elseif entry.requests >= grant.minute_zero then
            return "requests", false
        elseif entry.requests >= grant.minute_until then
            short = short or "requests"
        end
    end
    if limits.tokens then
        if not grant.tokens_rest then return "unknown", true end
        if grant.tokens_rest <= 0 and not stale then return "tokens", false end
    end
    return short, short ~= nil
end

-- Returns the seconds until a retry may succeed.
local function retry_seconds(limit, grant, now)
    if limit == "requests_day" or limit == "tokens_day" then return math.max(math.ceil(grant.day_ends - now), 1) end
    local free_at = limit == "requests" and grant.minute_frees or grant.tokens_free
    -- Without a time, the whole limit was used after the grant.
    if not free_at or free_at == 0 then return LONGEST end
    return math.min(math.max(math.ceil(free_at - now), 1), LONGEST)
end

-- Refuses a request that exceeds a limit, possibly after a wait.
local function refuse(txn, limits, entry, limit, may_wait)
    if limit == "unknown" then return refusals.answer(txn, "unknown_limits") end
    if may_wait then return refusals.limited(txn, limit .. "_reserved", limits[limit], 1) end
    refusals.limited(txn, limit, limits[limit], retry_seconds(limit, entry.grant, clock()))
end

-- Returns a place for a waiting request of a holder; false if all are taken. HAProxy may abort a waiting request, so
-- places expire.
local function take_place(entry, now)
    if entry.waiting >= MOST_WAITING then
        for place, ends in pairs(entry.places) do
            if now > ends then entry.places[place], entry.waiting = nil, entry.waiting - 1 end
        end
    end
    if entry.waiting >= MOST_WAITING then return false end
    local place = {}
    entry.places[place], entry.waiting = now + WAIT_MILLISECONDS / 1000 + 1, entry.waiting + 1
    return place
end

local function leave_place(entry, place)
    if entry.places[place] then entry.places[place], entry.waiting = nil, entry.waiting - 1 end
end

-- Waits until the request may pass, or certainly may not. Returns the entry, and the results of check_limits.
local function wait(name, limits, entry, now, limit)
    local place = take_place(entry, now)
    if not place then return entry, limit, true end
    local first, deadline, step, may_wait = entry, now + WAIT_MILLISECONDS / 1000, STEP, true
    repeat
        changed[name], entry.waited = entry, now
        core.msleep(step)
        now, step = clock(), math.min(step * 3 // 2, LONGEST_STEP)
        entry = get_entry(name)
        if not entry then return nil, "unknown", true end
        limit, may_wait = check_limits(limits, entry, now)
    until not may_wait or now >= deadline
    leave_place(first, place)
    changed[name] = entry
    return entry, limit, may_wait
end

local function set_remaining(txn, limits, entry)
    local grant = entry.grant
    if limits.requests then txn:set_var("txn.left_requests", math.max((grant.minute_zero or 0) - entry.requests, 0)) end
    if limits.tokens then txn:set_var("txn.left_tokens", math.max(grant.tokens_rest or 0, 0)) end
end

core.register_action("limit", {"http-req"}, function(txn)
    local name = txn:get_var("txn.holder") or txn:get_var("txn.key")
    local limits, now = parse_limits(txn:get_var("txn.limits")), clock()
    if not (limits.requests or limits.tokens or limits.requests_day or limits.tokens_day) then
        return txn:set_var("txn.counted", true)
    end
    local entry = get_entry(name)
    if not entry then return refuse(txn, limits, nil, "unknown") end
    local limit, may_wait = check_limits(limits, entry, now)
    if may_wait then entry, limit, may_wait = wait(name, limits, entry, now, limit) end
    if not entry then return refuse(txn, limits, nil, "unknown") end
    if limit then
        changed[name] = entry   -- it gets a new grant soon, even if there are many holders
        if entry.grant then set_remaining(txn, limits, entry) end
        return refuse(txn, limits, entry, limit, may_wait)
    end
    entry.requests, changed[name] = entry.requests + 1, entry
    set_remaining(txn, limits, entry)
    txn:set_var("txn.counted", true)
end)

core.register_action("refuse_busy", {"http-req"}, function(txn)
    refusals.limited(txn, "at_once", parse_limits(txn:get_var("txn.limits")).at_once, 1)
end)

local function format_row(entry, recent)
    local waiting = entry.waiting > 0 and entry.waited > recent and 1 or 0
    local grant = entry.grant or {}
    local minute, day = grant.minute_until or 0, grant.day_until or 0
    return ("%s %s %d %d %d %d\n"):format(names.encode(entry.name), entry.birth, entry.requests, waiting, minute, day)
end

-- "show slipway limits [all]": a line for each holder with changes since the last call, or for all. It contains name,
-- birth, requests, whether a request waits (0 or 1), and the numbers up to which requests may pass, for the limits per
-- minute and per day.
local function show(applet, ...)
    local words = {...}
    local rows = changed
    changed, polled_at = {}, clock()
    local recent = polled_at - WAITING_SECONDS
    if words[#words] == "all" then
        -- HAProxy runs other requests in between, which may add entries. Access by index misses none.
        for index = #entries, 1, -1 do
            local entry = entries[index]
            if entry then applet:send(format_row(entry, recent)) end
        end
        return
    end
    for name, entry in pairs(rows) do
        if holders[name] == entry then applet:send(format_row(entry, recent)) end
    end
end

local function take_grant(word)
    local name, birth, text = word:match("^([^:]+):([^:]+):(.+)$")
    name = name and names.decode(name)
    local entry = name and holders[name]
    if not entry or entry.birth ~= birth then return end
    local grant, index = {}, 0
    for field in text:gmatch("[^:]+") do
        index = index + 1
        grant[FIELDS[index]] = tonumber(field)
    end
    grant.day_ends = grant.day_ends or 0
    entry.grant = grant
end

-- "set slipway limits WORD...": each word is "name:birth:" and the fields of a grant.
local function set(applet, ...)
    for _, word in ipairs({...}) do take_grant(word) end
end

-- Deletes an entry if the control process has counted all its requests. Returns whether the entry no longer exists.
local function drop_entry(name, birth, requests)
    local entry = holders[name]
    if not entry or entry.birth ~= birth then return true end
    if entry.requests ~= requests then return false end
    remove(entry)
    return true
end

-- "drop slipway limits WORD...": each word is "name:birth:requests". Prints a line "name birth" for each entry that no
-- longer exists.
local function drop(applet, ...)
    for _, word in ipairs({...}) do
        local name, birth, requests = word:match("^([^:]+):([^:]+):(%d+)$")
        if name and drop_entry(names.decode(name), birth, tonumber(requests)) then
            applet:send(("%s %s\n"):format(name, birth))
        end
    end
end

core.register_cli({"drop", "slipway", "limits"}, "drop slipway limits : entries of holders of limits", drop)
core.register_cli({"show", "slipway", "limits"}, "show slipway limits : requests of holders of limits", show)
core.register_cli({"set", "slipway", "limits"}, "set slipway limits : grants for holders of limits", set)
