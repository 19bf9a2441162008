//! Typed client and tool-host runtime.
