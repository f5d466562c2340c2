-- Writes a few bytes over a request's body as it passes, as many as were there: all else stays as the client sent it.
--
-- A filter of the backend `rewrite`, so that only requests that are sent there pay. Reads txn.at, the number of bytes before
-- the place, and txn.text, what is written there. Loaded once in each thread.

local Rewrite = {flags = filter.FLT_CFG_FL_HTX}
Rewrite.__index = Rewrite

function Rewrite:new()
    return setmetatable({passed = 0}, Rewrite)
end

function Rewrite:http_headers(txn, message)
    if not message.channel:is_resp() then
        self.at, self.text = txn:get_var("txn.at"), txn:get_var("txn.text")
        filter.register_data_filter(self, message.channel)
    end
    return filter.CONTINUE
end

-- Called with each piece of the body. Returns how much of it may go on: nothing said means all.
function Rewrite:http_payload(_, message)
    local length = message:input()
    if self.text and self.passed + length > self.at then
        local from = self.at - self.passed
        if from + #self.text > length then
            self.passed = self.at   -- the rest of the place is still to come
            return from
        end
        message:set(self.text, from, #self.text)
        self.text = nil
    end
    self.passed = self.passed + length
end

core.register_filter("rewrite", Rewrite, function(class) return class end)
