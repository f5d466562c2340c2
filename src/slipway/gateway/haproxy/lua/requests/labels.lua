-- Checks a model's labels against the request's label selectors: each header X-Label-Selector, in Kubernetes' syntax.
--
-- Only requests with the header come here. selector.py filters the model list by the same rules.
-- Sets txn.selected to yes, no or bad. Loaded once in each thread. Argument: the map of labels by backend.

local all_labels = Map.new((...), Map._str)

local HEADER = "x-label-selector"
local NOT_WORD = "^[^%s!=<>,()]+()"

local function is_name(text)
    return #text <= 63 and text:match("^%w[%w_.-]*$") ~= nil and text:match("%w$") ~= nil
end

local function is_key(text)
    local prefix, name = text:match("^(.*)/([^/]*)$")
    if not prefix then return is_name(text) end
    return #prefix <= 253 and prefix:match("^[a-z0-9][a-z0-9.-]*$") ~= nil and prefix:match("[a-z0-9]$") ~= nil
        and is_name(name)
end

local function is_value(text)
    return text == "" or is_name(text)
end

local function parse_integer(text)
    return #text <= 19 and text:match("^[+-]?%d+$") and math.tointeger(tonumber((text:gsub("^%+", "")))) or nil
end

local function labels_of(backend)
    local labels = {}
    for key, value in (all_labels:lookup(backend) or ""):gmatch("([^,=]+)=([^,]*)") do labels[key] = value end
    return labels
end

-- Reads the list in brackets after "in" or "notin". Returns the set of values and the index after the list.
local function read_list(text, at)
    local inside, after = text:match("^%s*%(([^!=<>()]*)%)()", at)
    if not inside or not inside:match("%S") then return nil end
    local values = {}
    for value in (inside .. ","):gmatch("([^,]*),") do
        -- Two steps, because the time of one pattern with spaces at both ends grows with the square of their number.
        local from = value:match("^%s*()")
        local word, rest = value:match("^(%S*)%s*()", from)
        if rest <= #value or not is_value(word) then return nil end
        values[word] = true
    end
    return values, after
end

-- Evaluates one requirement. Returns whether the labels meet it, and the index after it; nil if it is invalid.
local function evaluate_requirement(text, at, labels)
    at = text:match("^%s*()", at)
    local absent = text:sub(at, at) == "!"
    if absent then at = text:match("^%s*()", at + 1) end
    local after = text:match(NOT_WORD, at)
    if not after then return nil end
    local key = text:sub(at, after - 1)
    if not is_key(key) then return nil end
    local label = labels[key]
    if absent then return label == nil, after end
    local sign, behind = text:match("^%s*([!=<>]+)%s*()", after)
    if sign then
        local value, stop = text:match("^([^%s!=<>,()]*)()", behind)
        if not is_value(value) and sign ~= "<" and sign ~= ">" then return nil end
        if sign == "=" or sign == "==" then return label == value, stop end
        if sign == "!=" then return label ~= value, stop end
        local bound, number = parse_integer(value), label and parse_integer(label)
        if not bound or (sign ~= "<" and sign ~= ">") then return nil end
        return number ~= nil and number ~= false and (sign == "<" and number < bound or sign == ">" and number > bound), stop
    end
    local word, open = text:match("^%s+(%l+)()%s*%(", after)
    if not word then return label ~= nil, after end
    local values, stop = read_list(text, open)
    if not values then return nil end
    if word == "in" then return label ~= nil and values[label] == true, stop end
    if word == "notin" then return label == nil or not values[label], stop end
    return nil
end

-- Returns whether the labels match a selector; nil if it is invalid.
local function evaluate_selector(text, labels)
    if not text:match("%S") then return true end
    local at, all = 1, true
    while true do
        local holds, after = evaluate_requirement(text, at, labels)
        if holds == nil then return nil end
        all = all and holds
        local comma, behind = text:match("^%s*(,?)()", after)
        if comma == "" then
            if text:match("%S", behind) then return nil end
            return all
        end
        at = behind
    end
end

local function select_model(txn)
    local labels = labels_of(txn:get_var("txn.be"))
    local selected = "yes"
    for _, text in pairs(txn.http:req_get_headers()[HEADER] or {}) do
        local holds = evaluate_selector(text, labels)
        if holds == nil then
            selected = "bad"
            break
        end
        if not holds then selected = "no" end
    end
    txn:set_var("txn.selected", selected)
end

core.register_action("select_model", {"http-req"}, select_model)
