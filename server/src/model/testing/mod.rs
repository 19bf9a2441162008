//! What tests and fuzz targets of this module share.

#[cfg(test)]
pub(in crate::model) mod fixtures;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
#[cfg(test)]
pub(in crate::model) mod wire;
