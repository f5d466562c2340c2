-- Selects the target of a request for an ID whose route has targets. The public frontend calls "choose_target", and the
-- frontend of the hop calls "take_turn" for each attempt. targets.py writes the entries of the map.
--
-- choose_target reads txn.targets and sets txn.be. If several targets may answer, it also sets txn.turns, how many may
-- follow the first, and a header with all of them. If a target's engine only knows the model by another name, it sets
-- txn.name. txn.within is the time in which a target must begin its answer, in milliseconds.
-- take_turn reads the header and txn.turn, the number of the attempt from 0. It sets txn.be, txn.model, txn.name,
-- txn.within and, if another target follows, txn.wait, the seconds to wait for an endpoint.
-- If no target's engine serves the path, choose_target sets txn.unserved.
-- Loaded once in each thread. Arguments: the maps of backends whose requests are held, of plain names, and of paths
-- that engines do not serve; if keys are required, also the maps of restricted keys and of the backends that these may
-- use.

local held_map, names_map, lacks_map, restricted_map, allowed_map = ...

local refusals = require("refusals")

local held = Map.new(held_map, Map._str)
local plain_names = Map.new(names_map, Map._str)
local lacks = Map.new(lacks_map, Map._str)
local restricted = restricted_map and Map.new(restricted_map, Map._str)
local allowed = allowed_map and Map.new(allowed_map, Map._str)

local HEADER, NEXT, CHANGED = "x-slipway-targets", "x-slipway-turn", "x-slipway-backend"
local KEY = "x-slipway-key"
local MOST_PARSED = 1 << 20    -- maximum characters of routes that are cached in parsed form

-- Each draw uses the next number of a sequence that is evenly distributed in any part. With random numbers, one in six
-- series of 5,000 draws would miss a share by more than one percentage point. LENGTH is a prime, and STEP its golden
-- section.
local LENGTH, STEP = 997, 616
local drawn = 0

local function parse_set(words, separator)
    local result, any = {}, false
    for word in words:gmatch("[^" .. separator .. "]+") do result[word], any = true, true end
    return result, any
end

local function decode(text)
    return (text:gsub("%%(%x%x)", function(code) return string.char(tonumber(code, 16)) end))
end

local function parse_conditions(text)
    local result = {}
    for name, values in text:gmatch("([^!=]+)=([^!]*)") do
        local accepted = {}
        for value in (values .. "^"):gmatch("([^^]*)^") do accepted[decode(value)] = true end
        result[#result + 1] = {name = name, accepted = accepted}
    end
    return result
end

local function parse_targets(text)
    local targets = {}
    for word in text:gmatch("[^|]+") do
        local fields = {}
        for field in (word .. "&"):gmatch("([^&]*)&") do fields[#fields + 1] = field end
        local models, some = parse_set(fields[10], "^")
        targets[#targets + 1] = {
            backend = fields[1], order = tonumber(fields[2]), weight = tonumber(fields[3]), wait = tonumber(fields[4]),
            within = tonumber(fields[5]), only = fields[6] == "1", like_own = fields[7] == "1", name = fields[8],
            engine_ids = parse_set(fields[9], "^"), models = some and models or nil, headers = parse_conditions(fields[11]),
        }
    end
    return targets
end

local parsed_routes, parsed_size = {}, 0

local function targets_of(text)
    local targets = parsed_routes[text]
    if not targets then
        if parsed_size + #text > MOST_PARSED then parsed_routes, parsed_size = {}, 0 end
        targets = parse_targets(text)
        parsed_routes[text], parsed_size = targets, parsed_size + #text
    end
    return targets
end

local function has_one(values, accepted)
    for _, value in pairs(values or {}) do
        if accepted[value] then return true end
    end
    return false
end

-- Whether the request meets the target's conditions.
local function is_for(target, model, headers)
    if target.models and not target.models[model] then return false end
    for _, condition in ipairs(target.headers) do
        if not has_one(headers()[condition.name], condition.accepted) then return false end
    end
    return true
end

local function has_server(backend)
    if held:lookup(backend) then return false end
    local proxy = core.backends[backend]
    return proxy ~= nil and proxy:get_srv_act() > 0
end

-- Selects one of the targets of an order by weight, among those with an endpoint. If there is none, returns the first
-- target for which requests may wait.
local function draw(targets)
    local alive, total, patient = {}, 0, nil
    for _, target in ipairs(targets) do
        if has_server(target.backend) then
            alive[#alive + 1] = target
            total = total + target.weight
        elseif target.wait > 0 then
            patient = patient or target
        end
    end
    if total == 0 then return alive[1] or patient end
    drawn = (drawn + STEP) % LENGTH
    local place = drawn * total // LENGTH
    for _, target in ipairs(alive) do
        place = place - target.weight
        if place < 0 then return target end
    end
end

-- Returns the targets that may get the request, as a list for each order.
local function group_by_order(targets, model, headers, is_allowed)
    local orders, last, last_order = {}, nil, nil
    for _, target in ipairs(targets) do
        if last_order and target.order > last_order then break end
        if is_for(target, model, headers) then
            if target.only then last_order = target.order end
            if is_allowed(target) then
                if not last or target.order > last.order then
                    last = {order = target.order}
                    orders[#orders + 1] = last
                end
                last[#last + 1] = target
            end
        end
    end
    return orders
end

local function engine_name(target, model)
    if target.like_own then return plain_names:lookup(model) or "" end
    return target.engine_ids[model] and "" or target.name
end

local function encode_turn(target, model)
    return ("%s&%d&%d&%s"):format(target.backend, target.wait, target.within, engine_name(target, model))
end

local function set_target(txn, backend, within, name)
    txn:set_var("txn.be", backend)
    if name ~= "" then txn:set_var("txn.name", name) end
    if within > 0 then
        txn:set_var("txn.within", within * 1000)
        txn:set_var("txn.text", "")   -- sends it through the hop for changed bodies, which has the timer
    end
end

local function choose_target(txn)
    local model, key = txn:get_var("txn.model"), txn:get_var("txn.key")
    local bound = restricted and key and restricted:lookup(key)
    local cached
    local function headers()
        cached = cached or txn.http:req_get_headers()
        return cached
    end
    local kind, unserved = txn:get_var("txn.kind"), false
    local function serves(target)
        local lacking = lacks:lookup(target.backend)
        if not lacking or math.tointeger(lacking) & kind == 0 then return true end
        unserved = true
        return false
    end
    local function is_allowed(target)
        return (not bound or target.like_own or allowed:lookup(key .. "/" .. target.backend) ~= nil) and serves(target)
    end
    local orders, turns = group_by_order(targets_of(txn:get_var("txn.targets")), model, headers, is_allowed), {}
    if #orders == 0 and unserved then return txn:set_var("txn.unserved", true) end
    if #orders == 0 then return refusals.answer(txn, "untargeted") end
    for _, equals in ipairs(orders) do turns[#turns + 1] = draw(equals) end
    if #turns == 0 then turns[1] = orders[1][1] end
    -- A request that does not fit in a buffer cannot be resent.
    if #turns == 1 or txn:get_var("txn.ticket") then
        return set_target(txn, turns[1].backend, turns[1].within, engine_name(turns[1], model))
    end
    local words = {model}
    for _, target in ipairs(turns) do words[#words + 1] = encode_turn(target, model) end
    txn:set_var("txn.be", turns[1].backend)
    txn:set_var("txn.turns", #turns - 1)
    txn.http:req_set_header(HEADER, table.concat(words, "|"))
    local holder = txn:get_var("txn.holder") or key
    if holder then txn.http:req_set_header(KEY, holder) end
end

local function take_turn(txn)
    local words = {}
    for word in (txn.f:req_fhdr(HEADER) or ""):gmatch("[^|]+") do words[#words + 1] = word end
    local number = tonumber((txn:get_var("txn.turn") or ""):match("%d+")) or 0
    local backend, wait, within, name = (words[number + 2] or words[#words] or ""):match("^([^&]*)&(%d+)&(%d+)&(.*)$")
    txn.http:req_del_header(HEADER)
    txn.http:req_del_header(NEXT)
    txn.http:req_del_header(CHANGED)   -- the target's name is set, not the route's
    txn:set_var("txn.model", words[1])
    set_target(txn, backend, tonumber(within), name)
    if number + 2 < #words then
        txn:set_var("txn.wait", tonumber(wait))
        txn.http:req_set_header(NEXT, "next")
    end
end

core.register_action("choose_target", {"http-req"}, choose_target)
core.register_action("take_turn", {"http-req"}, take_turn)
