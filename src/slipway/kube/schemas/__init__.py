"""CustomResourceDefinitions from structs, parts of Kubernetes' own objects, and status conditions. Pure."""
