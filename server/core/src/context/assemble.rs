//! Deltas to one finished message.
