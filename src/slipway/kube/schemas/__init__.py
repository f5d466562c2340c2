"""CustomResourceDefinitions from structs, parts of Kubernetes' own objects, and conditions. Pure."""
