-- What a client may have meant: a path, or a model ID. The work for each request is bounded.

local known = require("known")

local LONGEST = 64   -- characters of a text that is compared
local FAR = 5        -- edits between two paths that are not alike

local models = Map.new(known.models, Map._str)
local restricted = known.restricted and Map.new(known.restricted, Map._str)

local nearest = {}

-- Number of characters to insert, delete or replace.
local function distance(one, other)
    local row = {}
    for j = 0, #other do row[j] = j end
    for i = 1, #one do
        local diagonal = row[0]
        row[0] = i
        for j = 1, #other do
            local replaced = diagonal + (one:byte(i) == other:byte(j) and 0 or 1)
            diagonal = row[j]
            row[j] = math.min(replaced, row[j] + 1, row[j - 1] + 1)
        end
    end
    return row[#other]
end

-- The known path that is most like this one, or nil.
function nearest.path(path)
    if #path > LONGEST then return nil end
    local best, least = nil, FAR
    for _, other in ipairs(known.paths) do
        -- The difference of the lengths is the least that it can be.
        local edits = math.abs(#path - #other) < least and distance(path, other)
        if edits and edits < least then best, least = other, edits end
    end
    return best
end

-- An existing ID: in lower case, without an organization or a tag, without one character, or with two of them swapped.
-- nil for keys that may not use every model: a suggestion would reveal the others.
function nearest.model(txn, model)
    if #model > LONGEST or restricted and restricted:lookup(txn:get_var("txn.key") or "") then return nil end
    local lower = model:lower()
    for _, one in ipairs({lower, lower:match("([^/]+)$") or "", lower:match("^([^:]+)") or ""}) do
        if models:lookup(one) then return one end
    end
    for i = 1, #lower do
        local before, after = lower:sub(1, i - 1), lower:sub(i + 1)
        local swapped = before .. after:sub(1, 1) .. lower:sub(i, i) .. after:sub(2)
        for _, one in ipairs({before .. after, swapped}) do
            if models:lookup(one) then return one end
        end
    end
    return nil
end

return nearest
