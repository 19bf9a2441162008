//! The output of a tool.

use agentloop_proto::v1::{Image, image};
use serde::Serialize;

/// The output of a call: the text and the images that the model gets.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Output {
    pub(crate) text: String,
    pub(crate) images: Vec<Image>,
}

impl Output {
    /// An output of text alone.
    pub fn text(text: impl Into<String>) -> Self {
        Output { text: text.into(), images: Vec::new() }
    }

    /// Adds an image. `media_type` is its MIME type, such as `image/png`.
    pub fn image(mut self, data: Vec<u8>, media_type: impl Into<String>) -> Self {
        self.images.push(Image { source: Some(image::Source::Data(data)), media_type: media_type.into() });
        self
    }

    /// Adds an image by its `https:` URL.
    pub fn image_url(mut self, url: impl Into<String>) -> Self {
        self.images.push(Image { source: Some(image::Source::Url(url.into())), media_type: String::new() });
        self
    }

    /// Bytes of the text and all images.
    pub(crate) fn size(&self) -> usize {
        let images = self.images.iter().map(|image| match &image.source {
            Some(image::Source::Data(data)) => data.len(),
            Some(image::Source::Url(url)) => url.len(),
            None => 0,
        });
        self.text.len() + images.sum::<usize>()
    }
}

/// A value that a handler may return: [`Output`], or anything that serializes. A string becomes the text; every other
/// value becomes JSON.
pub trait IntoOutput {
    /// Converts the value into the output of the call.
    ///
    /// # Errors
    /// When the value cannot be written as JSON.
    fn into_output(self) -> Result<Output, serde_json::Error>;
}

impl IntoOutput for Output {
    fn into_output(self) -> Result<Output, serde_json::Error> {
        Ok(self)
    }
}

impl<T: Serialize> IntoOutput for T {
    fn into_output(self) -> Result<Output, serde_json::Error> {
        let json = serde_json::to_string(&self)?;
        let text = if json.starts_with('"') { serde_json::from_str(&json)? } else { json };
        Ok(Output::text(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_stay_text_and_values_become_json() {
        assert_eq!("say \"hi\"".into_output().expect("text").text, "say \"hi\"");
        assert_eq!(String::from("a\nb").into_output().expect("text").text, "a\nb");
        assert_eq!([1, 2].into_output().expect("json").text, "[1,2]");
        assert_eq!(().into_output().expect("json").text, "null");
        assert_eq!(Some("x").into_output().expect("text").text, "x");
    }

    #[test]
    fn size_counts_images() {
        let output = Output::text("abc").image(vec![0; 10], "image/png").image_url("https://a/b");
        assert_eq!(output.size(), 3 + 10 + 11);
    }
}
