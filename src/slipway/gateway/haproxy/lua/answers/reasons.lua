-- Why nothing answers for a model, as the controller tells it: by backend, and by id of those that are refused and have none.
-- The maps are changed while HAProxy runs.

local paths = require("reason_maps")

local of_backends = Map.new(paths.unready, Map._str)
local of_refused = Map.new(paths.refused, Map._str)

local reasons = {}

-- The reason, or nil; and whether waiting helps nobody.
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
