-- Removes a request's header Connection and the headers that it lists, which are only for the next hop, the gateway.
--
-- Only requests with such a header come here. Some headers control HAProxy or belong to the request, so they are never
-- removed. Otherwise a client could remove the gateway's request ID, or the Content-Length of the body.
-- Loaded once in each thread. Keeps no state.

local PROTECTED = {
    ["authorization"] = true, ["content-length"] = true, ["content-type"] = true, ["content-encoding"] = true,
    ["host"] = true, ["transfer-encoding"] = true, ["x-label-selector"] = true, ["x-request-id"] = true,
    ["close"] = true, ["connection"] = true,
}

local function drop_named(txn)
    for _, value in pairs(txn.http:req_get_headers()["connection"] or {}) do
        for name in value:lower():gmatch("[%w!#$%%&'*+.^_`|~-]+") do
            if not PROTECTED[name] then txn.http:req_del_header(name) end
        end
    end
    txn.http:req_del_header("connection")
end

-- Moves the key of a client that cannot set headers for a WebSocket, such as a page in a browser, to the header
-- Authorization. The key is "openai-insecure-api-key.KEY" in the subprotocols, or "api-key=KEY" in the query of a
-- session. Both are removed on every path, so that no engine gets them.

local ITEM = "openai-insecure-api-key."
local PARAMETER = "api-key="

local function take_item(txn)
    local key, remaining = nil, {}
    local values = txn.http:req_get_headers()["sec-websocket-protocol"] or {}
    for index = 0, #values do
        for item in (values[index] or ""):gmatch("[^,]+") do
            local name = item:match("^%s*(.-)%s*$")
            if name:sub(1, #ITEM):lower() == ITEM then
                key = key or name:sub(#ITEM + 1)
            elseif name ~= "" then
                remaining[#remaining + 1] = name
            end
        end
    end
    txn.http:req_del_header("sec-websocket-protocol")
    if #remaining > 0 then txn.http:req_add_header("sec-websocket-protocol", table.concat(remaining, ", ")) end
    return key
end

local function decode(text)
    return (text:gsub("%%(%x%x)", function(digits) return string.char(tonumber(digits, 16)) end))
end

local function take_parameter(txn)
    local key, remaining = nil, {}
    for part in (txn.sf:query() or ""):gmatch("[^&]+") do
        if part:sub(1, #PARAMETER) == PARAMETER then
            key = key or decode(part:sub(#PARAMETER + 1))
        else
            remaining[#remaining + 1] = part
        end
    end
    if key then txn.http:req_set_query(table.concat(remaining, "&")) end
    return key
end

-- Browsers may also send a password for basic authentication, which is not a key.
local function has_bearer(txn)
    for _, value in pairs(txn.http:req_get_headers()["authorization"] or {}) do
        if value:lower():find("^%s*bearer%s") then return true end
    end
    return false
end

local function take_key(txn)
    local item, parameter = take_item(txn), take_parameter(txn)
    local key = item or (txn.sf:path() == "/v1/realtime" and parameter) or ""
    -- A header cannot contain control characters, and no key has any.
    if key ~= "" and not key:find("%c") and not has_bearer(txn) then
        txn.http:req_set_header("authorization", "Bearer " .. key)
    end
end

core.register_action("take_key", {"http-req"}, take_key)
core.register_action("drop_named", {"http-req"}, drop_named)
