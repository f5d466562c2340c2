-- Finds the path or model ID that is most similar to a client's. The work for each request is limited.

local catalog = require("known")

local LONGEST = 64         -- maximum characters of a text that is compared
local LEAST_DISTANCE = 5   -- paths are not similar if this many characters differ

local models = Map.new(catalog.models, Map._str)
local restricted = catalog.restricted and Map.new(catalog.restricted, Map._str)

local nearest = {}

local function bytes_of(text)
    return {text:byte(1, -1)}
end

local known_paths = {}
for i, path in ipairs(catalog.paths) do known_paths[i] = {text = path, bytes = bytes_of(path), length = #path} end

-- Returns how many characters differ between the common beginning and the common end of two paths. Clients can request
-- any path, and computing an edit distance would cost ten times as much as the rest of the answer.
local function difference(one, length, other)
    local shorter, longer = math.min(length, other.length), math.max(length, other.length)
    local first, last = 0, 0
    while first < shorter and one[first + 1] == other.bytes[first + 1] do first = first + 1 end
    while first + last < shorter and one[length - last] == other.bytes[other.length - last] do last = last + 1 end
    return longer - first - last
end

-- Returns the most similar served path, or nil.
function nearest.path(path)
    local length = #path
    if length > LONGEST then return nil end
    local bytes = bytes_of(path)
    local best, least = nil, LEAST_DISTANCE
    for _, other in ipairs(known_paths) do
        -- The difference is never less than that of the lengths.
        local distance = math.abs(length - other.length) < least and difference(bytes, length, other)
        if distance and distance < least then best, least = other.text, distance end
    end
    return best
end

local function find_without_prefix_or_tag(text)
    for _, one in ipairs({text, text:match("([^/]+)$") or "", text:match("^([^:]+)") or ""}) do
        if models:lookup(one) then return one end
    end
    return nil
end

local function find_without_typo(text)
    for i = 1, #text do
        local before, after = text:sub(1, i - 1), text:sub(i + 1)
        local swapped = before .. after:sub(1, 1) .. text:sub(i, i) .. after:sub(2)
        for _, one in ipairs({before .. after, swapped}) do
            if models:lookup(one) then return one end
        end
    end
    return nil
end

-- Returns an existing ID, or nil. Tries the ID without an organization or a tag, without one character, and with two
-- adjacent characters swapped, unchanged and in lower case. Returns nil for restricted keys, because a suggestion would
-- reveal models that they may not use.
function nearest.model(txn, model)
    if #model > LONGEST or restricted and restricted:lookup(txn:get_var("txn.key") or "") then return nil end
    local lower = model:lower()
    local one = find_without_prefix_or_tag(model) or find_without_prefix_or_tag(lower) or find_without_typo(model)
    -- Long IDs with capitals do not cause twice the work.
    local tries_lower = lower ~= model and 2 * #model <= LONGEST
    return one or tries_lower and find_without_typo(lower) or nil
end

return nearest
