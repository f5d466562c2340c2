-- Reads the model from a JSON body in such a way that gateway and engine cannot read different models.
--
-- Engines in Python use the last of two equal keys, and decode escapes in keys. A gateway that reads the first plain
-- "model" could be deceived. The name is therefore only accepted from an unambiguous body:
--
--   quickly    The text "model" occurs exactly once in any case, none of its letters is escaped anywhere, its value is a
--              plain string, and the shorter side of the body proves that the key belongs to the outermost object.
--   strictly   Otherwise the whole body is parsed according to RFC 8259. A second "model" is refused.
--
-- Only bodies larger than the argument are read quickly. If another part of them is broken, the engine refuses them,
-- because parsing every byte of megabytes would cost more than all the rest of the gateway. Smaller bodies come here if
-- the regular expression in haproxy.cfg did not match, and are read strictly.
--
-- The work is limited: each value and each escape is counted, and a body with more of them than WORK is refused. Only
-- bodies of megabytes that hide their model reach this limit.
--
-- Engines in Go also accept the key in another case ("Model"). Such a key of the outermost object is refused.
--
-- Sets txn.model to the name, or txn.refused to one of: broken, missing, duplicate, case, type, control, complex.
-- A second action finds the place of the name in a body whose engine knows the model by another name.
-- Loaded once in each thread. Keeps no state, because HAProxy interrupts long work to serve other requests.

local small_body = tonumber((...))

local json = require("json")
local skip, unescape, PLAIN_ESCAPE = json.skip, json.unescape, json.PLAIN_ESCAPE
local byte, find, match, sub = string.byte, string.find, string.match, string.sub

local MAX_DEPTH = 512
local WORK = 1000000
local VALUE_WORK, ESCAPE_WORK = 4, 1
local QUOTE, BACKSLASH, OPEN, CLOSE, COMMA, COLON = 0x22, 0x5C, 0x7B, 0x7D, 0x2C, 0x3A
local OPEN_LIST, CLOSE_LIST = 0x5B, 0x5D
local ROWS, OPENINGS = {"\\u004", "\\u006"}, {'"m', '"M'}

-- Whether a key is "model" in another case.
local function is_twin(key)
    return #key == 5 and key ~= "model" and key:lower() == "model"
end

-- Returns the index after the string that opens at `at`, and whether it contains escapes; nil if it is broken.
local function string_end(text, at, work)
    local from, escaped = at + 1, false
    while true do
        local stop = find(text, '[%z\1-\31"\\]', from)
        if not stop then return nil end
        local code = byte(text, stop)
        if code == QUOTE then return stop + 1, escaped end
        if code ~= BACKSLASH then return nil end
        escaped = true
        work.remaining = work.remaining - ESCAPE_WORK
        if work.remaining < 0 then return nil end
        local kind = sub(text, stop + 1, stop + 1)
        if PLAIN_ESCAPE[kind] then
            from = stop + 2
        elseif kind == "u" and match(text, "^%x%x%x%x", stop + 2) then
            from = stop + 6
        else
            return nil
        end
    end
end

local function scalar_end(text, at, work)
    local code = byte(text, at)
    if code == QUOTE then return (string_end(text, at, work)) end
    local _, last = find(text, "^-?%d+", at)
    if last then
        if find(text, "^-?0%d", at) then return nil end
        local _, fraction = find(text, "^%.%d+", last + 1)
        last = fraction or last
        local _, exponent = find(text, "^[eE][+-]?%d+", last + 1)
        return (exponent or last) + 1
    end
    local word = match(text, "^%l+", at)
    if word == "true" or word == "false" or word == "null" then return at + #word end
    return nil
end

-- Returns the index of the value of the key that opens at `at`, the index after the key, and whether the key has
-- escapes; nil if key or colon is broken.
local function value_of_key(text, at, work)
    if byte(text, at) ~= QUOTE then return nil end
    local after, escaped = string_end(text, at, work)
    if not after then return nil end
    local colon = skip(text, after)
    if byte(text, colon) ~= COLON then return nil end
    return skip(text, colon + 1), after, escaped
end

-- Returns the index after the value that begins at `at`; nil if it is broken. A list instead of the stack keeps the
-- nesting.
local function value_end(text, at, work)
    local closers, depth = {}, 0
    while true do
        local code = byte(text, at)
        local opened = false
        work.remaining = work.remaining - VALUE_WORK
        if work.remaining < 0 then return nil end
        if code == OPEN or code == OPEN_LIST then
            depth = depth + 1
            if depth > MAX_DEPTH then return nil end
            closers[depth] = code + 2
            at = skip(text, at + 1)
            opened = byte(text, at) ~= closers[depth]
        else
            at = scalar_end(text, at, work)
            if not at then return nil end
        end
        while not opened do
            if depth == 0 then return at end
            at = skip(text, at)
            code = byte(text, at)
            if code == closers[depth] then
                depth = depth - 1
                at = at + 1
            elseif code == COMMA then
                at = skip(text, at + 1)
                opened = true
            else
                return nil
            end
        end
        if closers[depth] == CLOSE then
            at = value_of_key(text, at, work)
            if not at then return nil end
        end
    end
end

-- Parses a whole document. Returns the model's name, nil, and the begin and end of its value; or nil and the reason of
-- the refusal.
local function read_strictly(text, work)
    local at = skip(text, 1)
    if byte(text, at) ~= OPEN then return nil, "broken" end
    at = skip(text, at + 1)
    local has_model, model, fault, from, to = false, nil, nil, nil, nil
    local more = byte(text, at) ~= CLOSE
    while more do
        local value, key_end, key_escaped = value_of_key(text, at, work)
        if not value then return nil, "broken" end
        local key = sub(text, at + 1, key_end - 2)
        if key_escaped then key = unescape(key) end
        local after = value_end(text, value, work)
        if not after then return nil, "broken" end
        if key == "model" then
            if has_model then fault = "duplicate" end
            has_model = true
            if byte(text, value) == QUOTE then
                model, from, to = unescape(sub(text, value + 1, after - 2)), value, after
            else
                fault = fault or "type"
            end
        elseif is_twin(key) then
            fault = fault or "case"
        end
        at = skip(text, after)
        more = byte(text, at) == COMMA
        if more then at = skip(text, at + 1) end
    end
    if byte(text, at) ~= CLOSE or skip(text, at + 1) <= #text then return nil, "broken" end
    if fault then return nil, fault end
    if not has_model or model == "" then return nil, "missing" end
    if find(model, "%c") then return nil, "control" end
    return model, nil, from, to
end

-- Returns the index of the value of a key, or nil if the key has escapes or is "model" in another case.
local function value_of_plain_key(text, at, work)
    local value, key_end, escaped = value_of_key(text, at, work)
    if not value or escaped then return nil end
    if key_end - at == 7 and is_twin(sub(text, at + 1, key_end - 2)) then return nil end
    return value
end

-- Whether the text before `stop` is the beginning of an object with complete members.
local function opens_object(text, stop, work)
    local at = skip(text, 1)
    if byte(text, at) ~= OPEN then return false end
    at = skip(text, at + 1)
    while at < stop do
        at = value_of_plain_key(text, at, work)
        at = at and value_end(text, at, work)
        if not at then return false end
        at = skip(text, at)
        if byte(text, at) ~= COMMA then return false end
        at = skip(text, at + 1)
    end
    return at == stop and find(text, "}[ \t\r\n]*$", -16) ~= nil
end

-- Whether the text from `at` contains complete members and the end of an object, and nothing else.
local function closes_object(text, at, work)
    at = skip(text, at)
    while byte(text, at) == COMMA do
        at = value_of_plain_key(text, skip(text, at + 1), work)
        at = at and value_end(text, at, work)
        if not at then return false end
        at = skip(text, at)
    end
    return byte(text, at) == CLOSE and skip(text, at + 1) > #text
end

-- Whether a letter of the word model, in any case, is escaped anywhere. Some encoders escape other characters of the
-- same rows, such as the grave accent.
local function may_hide_key(text)
    for _, row in ipairs(ROWS) do
        local at = find(text, row, 1, true)
        while at do
            if match(text, "^[45cCdDfF]", at + 5) then return true end
            at = find(text, row, at + 6, true)
        end
    end
    return false
end

-- Whether "model" occurs in any case elsewhere than at `first`, as a key or as a value. Searches for two plain
-- characters, because patterns that do not match are many times slower.
local function is_repeated(text, first, work)
    for _, opening in ipairs(OPENINGS) do
        local at = find(text, opening, 1, true)
        while at do
            work.remaining = work.remaining - ESCAPE_WORK
            if work.remaining < 0 or at ~= first and match(text, '^"[mM][oO][dD][eE][lL]"', at) then return true end
            at = find(text, opening, at + 2, true)
        end
    end
    return false
end

-- Returns the name, nil and the bounds of its value if the body is clearly unambiguous; nil if `read_strictly` must
-- decide.
local function read_quickly(text, work)
    local first, last = find(text, '"model"', 1, true)
    if not first or is_repeated(text, first, work) or may_hide_key(text) then return nil end
    if byte(text, first - 1) == BACKSLASH then return nil end
    local from, name, after = match(text, '^[ \t\r\n]*:[ \t\r\n]*()"([^%c"\\]+)"()', last + 1)
    if not name then return nil end
    if #text - after < first then
        if closes_object(text, after, work) then return name, nil, from, after end
    elseif opens_object(text, first, work) then
        return name, nil, from, after
    end
    return nil
end

local function find_model(text)
    local work = {remaining = WORK}
    local model, refused, from, to
    if #text > small_body then model, refused, from, to = read_quickly(text, work) end
    if not model then model, refused, from, to = read_strictly(text, work) end
    if work.remaining < 0 then refused = "complex" end
    return model, refused, from, to
end

local function read_model(txn)
    local model, refused = find_model(txn.f:req_body())
    if model then
        txn:set_var("txn.model", model)
    else
        txn:set_var("txn.refused", refused)
    end
end

-- Sets how to replace the model with txn.name: after txn.at bytes, txn.text replaces txn.cut bytes. If the new name is
-- shorter, spaces after the value keep the length.
local function place_model(txn)
    if (txn:get_var("txn.text") or "") ~= "" then return end   -- the engine does not see the field
    local name, value = txn:get_var("txn.name"), txn:get_var("txn.value")
    if value then
        txn:set_var("txn.at", value)
        txn:set_var("txn.cut", #txn:get_var("txn.model"))
        txn:set_var("txn.text", name)
        return
    end
    local _, _, from, to = find_model(txn.f:req_body())
    if not from then return end
    local text = '"' .. name .. '"'
    txn:set_var("txn.at", from - 1)
    txn:set_var("txn.cut", to - from)
    txn:set_var("txn.text", text .. (" "):rep(to - from - #text))
end

core.register_action("read_model", {"http-req"}, read_model)
core.register_action("place_model", {"http-req"}, place_model)
