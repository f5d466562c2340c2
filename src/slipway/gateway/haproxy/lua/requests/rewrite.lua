-- Replaces a few bytes of a request's body as it passes. The rest stays as the client sent it.
--
-- The filter belongs to the backend `rewrite`, so that only requests of that backend pay for it. txn.text replaces
-- txn.cut bytes (if unset: as many as it has) after txn.at bytes. Loaded once in each thread.

local Rewrite = {flags = filter.FLT_CFG_FL_HTX}
Rewrite.__index = Rewrite

function Rewrite:new()
    return setmetatable({passed = 0}, Rewrite)
end

function Rewrite:http_headers(txn, message)
    if not message.channel:is_resp() then
        self.at, self.text = txn:get_var("txn.at"), txn:get_var("txn.text")
        if (self.text or "") == "" then return filter.CONTINUE end
        self.cut = txn:get_var("txn.cut") or #self.text
        local announced = tonumber((message:get_headers()["content-length"] or {})[0])
        if announced and self.cut ~= #self.text then
            message:set_header("content-length", ("%d"):format(announced + #self.text - self.cut))
        end
        filter.register_data_filter(self, message.channel)
    end
    return filter.CONTINUE
end

-- Called with each piece of the body. Returns how many bytes may pass; nil means all.
function Rewrite:http_payload(_, message)
    local length = message:input()
    if self.text and self.passed + length > self.at then
        local from = self.at - self.passed
        if from + self.cut > length then
            self.passed = self.at   -- the rest of the replaced bytes has not arrived yet
            return from
        end
        message:set(self.text, from, self.cut)
        self.text = nil
    end
    self.passed = self.passed + length
end

core.register_filter("rewrite", Rewrite, function(class) return class end)
