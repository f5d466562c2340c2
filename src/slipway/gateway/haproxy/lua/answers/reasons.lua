-- Why no endpoint answers for a model, as the controller reports it: by backend, and by ID for refused models, which
-- have no backend. The control process changes the maps while HAProxy runs.

local paths = require("reason_maps")

local of_backends = Map.new(paths.unready, Map._str)
local of_refused = Map.new(paths.refused, Map._str)

local reasons = {}

-- Returns the reason, or nil, and whether waiting is useless.
function reasons.of_backend(backend)
    local reason = backend and of_backends:lookup(backend)
    if not reason then return nil, false end
    local transient = reason:match("^~(.*)$")
    return transient or reason, not transient
end

function reasons.of_id(model)
    return of_refused:lookup(model)
end

return reasons
