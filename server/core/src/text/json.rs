//! The length of values as JSON, without their text.

use std::io;

use serde::Serialize;

/// Length of the value as JSON, in bytes.
///
/// # Panics
/// If it has no form in JSON. Plain data has one.
#[must_use]
pub fn encoded_len(value: &impl Serialize) -> usize {
    struct ByteCount(usize);
    impl io::Write for ByteCount {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = ByteCount(0);
    serde_json::to_writer(&mut count, value).expect("plain data serialises");
    count.0
}
