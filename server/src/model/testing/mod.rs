//! Fixtures and fuzz targets that the modules of `model` share.

#[cfg(test)]
pub(in crate::model) mod fixtures;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
#[cfg(test)]
pub(in crate::model) mod wire;
