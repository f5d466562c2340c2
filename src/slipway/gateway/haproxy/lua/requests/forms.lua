-- Reads the model from a form (multipart/form-data), which clients use to upload audio and images.
--
-- Searches for the boundary to skip parts, so that files cost no more than a search. Ambiguous forms are refused: two
-- fields "model", names in extended notation, encoded parts.
--
-- Sets txn.model to the name, txn.field to the number of bytes before the word model in the part's header, and
-- txn.value to the number of bytes before the name. Otherwise sets txn.refused to one of: form, missing, duplicate,
-- type, control, complex.
-- Loaded once in each thread. Keeps no state.

local find, match, sub = string.find, string.match, string.sub

local MAX_PARTS = 200
local MAX_HEADER = 8192
local MAX_NAME = 1024
local MAX_BEGINS = 10000   -- of boundaries in the content of parts
local FIELD = "model"

-- Returns the parameters after the first word of a header's value: values and places (indexes into `text`) by
-- lower-case name. Returns nil if the value is broken or contains a parameter twice.
local function parameters(text, at, stop)
    local values, places = {}, {}
    at = match(text, "^[^;]*()", at)
    while at <= stop do
        local name, from = match(text, "^;[ \t]*([%w!#$%%&'*+.^_`|~-]+)[ \t]*=[ \t]*()", at)
        if not name then
            return match(text, "^;?[ \t]*()", at) > stop and values or nil, places
        end
        name = name:lower()
        local value, place, after
        if sub(text, from, from) == '"' then
            place, after = from + 1, from + 1
            while true do
                after = find(text, '["\\]', after)
                if not after or after > stop then return nil end
                if sub(text, after, after) == '"' then break end
                after = after + 2
            end
            value = sub(text, place, after - 1)
            after = after + 1
        else
            place = from
            value, after = match(text, "^([^%s;\"]*)()", from)
        end
        if values[name] then return nil end
        values[name], places[name] = value, place
        at = match(text, "^[ \t]*()", after)
        if at <= stop and sub(text, at, at) ~= ";" then return nil end
    end
    return values, places
end

local function read_boundary(txn)
    local kind = (txn.f:req_fhdr("content-type") or "")
    if not match(kind:lower(), "^multipart/form%-data[ \t]*;") then return nil end
    local values = parameters(kind, 1, #kind)
    local boundary = values and values.boundary
    if not boundary or boundary == "" or #boundary > 200 or find(boundary, '[%c"\\]') then return nil end
    return "--" .. boundary
end

-- Reads the header of a part that begins at `at`. Returns its field's name, the index of that name, whether it is a
-- file, and the index of its content; nil if the header is broken.
local function read_header(text, at)
    local last = find(text, "\r\n\r\n", at - 2, true)
    if not last or last - at > MAX_HEADER then return nil end
    local name, place, is_file, encoded
    while at < last do
        local stop = (find(text, "\r\n", at, true)) - 1
        local key, from = match(text, "^([%w-]+)[ \t]*:[ \t]*()", at)
        if not key then return nil end
        key = key:lower()
        if key == "content-disposition" then
            local values, places = parameters(text, from, stop)
            if name or not match(text, "^[Ff]orm%-[Dd]ata", from) or not values or not values.name or values["name*"] then return nil end
            name, place = values.name, places.name
            is_file = values.filename ~= nil or values["filename*"] ~= nil
        elseif key == "content-transfer-encoding" then
            local encoding = match(text, "^[^\r;]*", from):lower()
            encoded = not (encoding == "binary" or encoding == "8bit" or encoding == "7bit")
        end
        at = stop + 3
    end
    if not name or find(name, "\\", 1, true) or (encoded and name == FIELD) then return nil end
    return name, place, is_file, last + 4
end

-- Returns the index of the boundary that ends a part, and the index after it; nil if there is none, or the work is used
-- up.
local function part_end(text, delimiter, at, work)
    local from = at - 2
    while true do
        local first, last = find(text, "\r\n" .. delimiter, from, true)
        if not first then return nil end
        local following = sub(text, last + 1, last + 2)
        if following == "\r\n" or following == "--" then return first, last + 1 end
        from = last   -- only the beginning of a longer line in a file
        work.remaining = work.remaining - 1
        if work.remaining < 0 then return nil end
    end
end

-- Returns the model, nil, the place of the field's name and that of its value; or nil and the reason of the refusal.
local function read_fields(text, delimiter)
    local at = match(text, "^\r?\n?()")
    if sub(text, at, at + #delimiter - 1) ~= delimiter then return nil, "form" end
    at = at + #delimiter
    local model, field, value
    local work = {remaining = MAX_BEGINS}
    for _ = 1, MAX_PARTS do
        if sub(text, at, at + 1) == "--" then
            if not model then return nil, "missing" end
            return model, nil, field, value
        end
        if sub(text, at, at + 1) ~= "\r\n" then return nil, "form" end
        local name, place, is_file, content = read_header(text, at + 2)
        if not name then return nil, "form" end
        local stop, following = part_end(text, delimiter, content, work)
        if not stop then return nil, work.remaining < 0 and "complex" or "form" end
        if name == FIELD then
            if model then return nil, "duplicate" end
            if is_file or stop - content > MAX_NAME then return nil, "type" end
            if stop <= content then return nil, "missing" end
            model, field, value = sub(text, content, stop - 1), place - 1, content - 1
            if find(model, "%c") then return nil, "control" end
        end
        at = following
    end
    return nil, "complex"
end

local function read_form(txn)
    local delimiter = read_boundary(txn)
    local model, refused, field, value = nil, "form", nil, nil
    if delimiter then model, refused, field, value = read_fields(txn.f:req_body(), delimiter) end
    if model then
        txn:set_var("txn.model", model)
        txn:set_var("txn.field", field)
        txn:set_var("txn.value", value)
    else
        txn:set_var("txn.refused", refused)
    end
end

core.register_action("read_form", {"http-req"}, read_form)
