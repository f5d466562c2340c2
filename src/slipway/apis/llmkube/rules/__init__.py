"""Rules that several kinds share: engines, hardware, scheduling, quotas, pools and adapters. Pure."""
