-- Holds requests of a key to its share of the key's limits. The shares of all gateways together are no more than the limit;
-- the control processes move them to where they are needed (sharing.py), and write them into shares.map: what this gateway
-- may have used of each limit, whether a request may take more than is left, and what the others have left.
--
-- Loaded once in each thread; keeps no state. Counting is done by rules, as Lua cannot write into a stick table.

local refusals = require("refusals")

local path, slot = ...
slot = tonumber(slot)

local LIMITS = {"requests", "tokens", "at_once", "requests_day", "tokens_day"}
local FAILURES = {
    requests = "many_requests", tokens = "many_tokens", at_once = "busy_key",
    requests_day = "spent_requests", tokens_day = "spent_tokens",
}
local TOKENS = {tokens = true, tokens_day = true}
local DAILY = {requests_day = true, tokens_day = true}
local DAY = 86400             -- seconds
local LAST, RESTS = 6, 6      -- the field that says whether a request may take more than is left, and what precedes the rests
local NONE = "-:-:-:-:-:0:-:-:-:-:-"   -- a limit of which the control process has not said anything yet: wait for it
local STEP, PATIENCE = 50, 2000        -- milliseconds that a request waits for a larger share

local shares = Map.new(path, Map._str)

local function numbers(text)
    local found = {}
    for field in text:gmatch("([^:]*):?") do found[#found + 1] = tonumber(field) or false end
    return found
end

-- What is used up of each limit. Tokens that are reserved count as used.
local function used(fetch)
    -- Both begin anew at 2^32, so what is more than half of that is less than nothing, as after a reload.
    local reserved = ((fetch:sc_get_gpc(2, slot) or 0) - (fetch:sc_get_gpc(3, slot) or 0)) & 0xFFFFFFFF
    if reserved >= 1 << 31 then reserved = 0 end
    local today = slot + 1
    return {
        fetch:sc_gpc_rate(0, slot) or 0, (fetch:sc_gpc_rate(1, slot) or 0) + reserved, (fetch:sc_conn_cur(slot) or 1) - 1,
        fetch:sc_get_gpc(0, today) or 0, (fetch:sc_get_gpc(1, today) or 0) + reserved,
    }
end

-- What this gateway may use for whoever asks: an owner of tokens whom no record names has what all of those have.
local function share_of(txn)
    local record = txn:get_var("txn.record")
    return shares:lookup(txn:get_var("txn.key")) or record and shares:lookup(record)
end

-- The first limit that this request would go beyond, whether other gateways have something left of it, and the tokens that
-- are left here. Tells the headers of the answer what is left once this request is counted. `counted`: it is, so only tokens
-- matter.
local function look(txn, need, counted)
    local limits, spent = numbers(txn:get_var("txn.limits")), used(txn.f)
    local share = numbers(share_of(txn) or NONE)
    local beyond, elsewhere, room
    for index, name in ipairs(LIMITS) do
        local most, tokens = limits[index], TOKENS[name]
        if most and (tokens or not counted) then
            local left, rest = (share[index] or 0) - spent[index], share[RESTS + index] or 1
            local needed = tokens and share[LAST] ~= 1 and math.min(need, most) or 1
            if tokens then room = math.min(room or left, left) end
            if left < needed and not beyond then beyond, elsewhere = name, rest > 0 end
            local own = name == "requests" and 1 or 0
            txn:set_var("txn.limit_" .. name, most)
            txn:set_var("txn.left_" .. name, math.max(math.min(left + rest, most) - own, 0))
        end
    end
    return beyond, elsewhere, room
end

-- The limits of a day begin anew at midnight, in UTC.
local function refuse(txn, name)
    refusals.answer(txn, FAILURES[name], DAILY[name] and DAY - core.now().sec % DAY)
end

-- Before a body is read: what is refused for sure.
core.register_action("limit_early", {"http-req"}, function(txn)
    local beyond, elsewhere = look(txn, 1)
    if beyond and not elsewhere then refuse(txn, beyond) end
end)

-- Sets txn.short where the share is too small, though others have something left.
core.register_action("limit", {"http-req"}, function(txn)
    local beyond, elsewhere = look(txn, txn:get_var("txn.need") or 1)
    if beyond and not elsewhere then refuse(txn, beyond) end
    if beyond then txn:set_var("txn.short", 1) end
end)

-- Waits for a larger share.
core.register_action("await_share", {"http-req"}, function(txn)
    local beyond, elsewhere
    for _ = 1, PATIENCE // STEP do
        core.msleep(STEP)
        beyond, elsewhere = look(txn, txn:get_var("txn.need") or 1)
        if not beyond then return end
        if not elsewhere then break end
    end
    refuse(txn, beyond)
end)

-- Once nothing else can refuse the request: sets txn.reserved to the tokens that it may use, its need at most.
core.register_action("reserve", {"http-req"}, function(txn)
    local need = txn:get_var("txn.need")
    local beyond, _, room = look(txn, need, true)
    if beyond then
        refuse(txn, beyond)
    elseif room then
        txn:set_var("txn.reserved", math.min(need, room))
    end
end)
