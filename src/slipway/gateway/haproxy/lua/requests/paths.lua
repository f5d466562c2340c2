-- Classifies requests whose path needs no body with a model, and is not that of the model list. Only those come here.
--
-- Sets txn.leads to the backend (see query_models.py), txn.asked to the number of the path, and txn.response to the
-- response's ID.
-- Loaded once in each thread. Keeps no state. Arguments: the numbers of stored responses and sessions.

local stored, session = ...
stored, session = math.tointeger(stored), math.tointeger(session)

local nearest = require("nearest")
local refusals = require("refusals")

local ID = "^/v1/responses/(%w[%w_.-]*)(.*)$"
local LONGEST = 128
-- Allowed methods by the rest of the path after the ID.
local METHODS = {
    [""] = {GET = true, DELETE = true}, ["/cancel"] = {POST = true}, ["/input_items"] = {GET = true},
}

local function other_path(txn)
    local path = txn.f:path() or ""   -- OPTIONS * and CONNECT have no path
    if path == "/v1/realtime" then
        txn:set_var("txn.leads", "beside")
        txn:set_var("txn.asked", session)
    else
        local id, rest = path:match(ID)
        if id and #id <= LONGEST and METHODS[rest] then
            txn:set_var("txn.leads", "beside")
            txn:set_var("txn.asked", stored)
            txn:set_var("txn.response", id)
        end
    end
end

local function is_allowed(txn, method)
    local leads, number = txn:get_var("txn.leads"), txn:get_var("txn.asked")
    if leads == "control" then return method == "GET" or method == "HEAD" end
    if number == session then return method == "GET" end
    local _, rest = txn.f:path():match(ID)
    return METHODS[rest][method]
end

-- Refuses unknown paths, and methods that a path does not support.
local function refuse_path(txn)
    if not txn:get_var("txn.leads") then
        return refusals.answer(txn, "unknown_path", nearest.path(txn.f:path() or ""))
    end
    if not is_allowed(txn, txn.f:method()) then return refusals.answer(txn, "wrong_method") end
end

core.register_action("other_path", {"http-req"}, other_path)
core.register_action("refuse_path", {"http-req"}, refuse_path)
