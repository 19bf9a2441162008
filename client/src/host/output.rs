//! The output of a tool.

use agentloop_proto::v1::{BlobHeader, FileContent, Image, Link, file_content, image};
use serde::Serialize;

/// The output of a call: the text and the images that the model gets.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Output {
    pub(crate) text: String,
    pub(crate) images: Vec<Image>,
    pub(crate) structured_json: String,
    pub(crate) files: Vec<FileContent>,
    pub(crate) links: Vec<Link>,
}

impl Output {
    /// An output of text alone.
    pub fn text(text: impl Into<String>) -> Self {
        Output { text: text.into(), ..Output::default() }
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

    /// A typed output: a value that follows the tool's [output schema](crate::host::ToolBuilder::output_schema_json). The
    /// model reads it as JSON, unless the output has a text, too.
    ///
    /// # Errors
    /// When the value cannot be written as JSON.
    pub fn structured(value: &impl Serialize) -> Result<Self, serde_json::Error> {
        Ok(Output { structured_json: serde_json::to_string(value)?, ..Output::default() })
    }

    /// Sets the text that the model reads.
    pub fn with_text(mut self, text: impl Into<String>) -> Self {
        self.text = text.into();
        self
    }

    /// Adds a file. The name has 1 to 256 bytes and no folders. The model reads its name, type and size.
    pub fn file(mut self, name: impl Into<String>, media_type: impl Into<String>, data: Vec<u8>) -> Self {
        let (name, media_type, size_bytes) = (name.into(), media_type.into(), data.len() as u64);
        let source = Some(file_content::Source::Data(data));
        self.files.push(FileContent { name, media_type, size_bytes, source });
        self
    }

    /// Adds a file whose contents are a blob, which [`Client::put_blob_file`](crate::Client::put_blob_file) has stored: for
    /// what is too large for a result of 3 MiB. The model reads its name, type, size and digest.
    pub fn blob(mut self, name: impl Into<String>, stored: &BlobHeader) -> Self {
        let BlobHeader { digest, size_bytes, media_type } = stored.clone();
        let source = Some(file_content::Source::BlobDigest(digest));
        self.files.push(FileContent { name: name.into(), media_type, size_bytes, source });
        self
    }

    /// Adds an `https:` or `http:` link, with a title for people. The model reads it; the server does not fetch it.
    pub fn link(mut self, url: impl Into<String>, title: impl Into<String>) -> Self {
        self.links.push(Link { url: url.into(), title: title.into() });
        self
    }

    /// Bytes of the text, all images, and what is beside them.
    pub(crate) fn size(&self) -> usize {
        let images = self.images.iter().map(|image| match &image.source {
            Some(image::Source::Data(data)) => data.len(),
            Some(image::Source::Url(url)) => url.len(),
            None => 0,
        });
        let files = self.files.iter().map(|file| match &file.source {
            Some(file_content::Source::Data(data)) => file.name.len() + file.media_type.len() + data.len(),
            Some(file_content::Source::BlobDigest(digest)) => {
                file.name.len() + file.media_type.len() + digest.len()
            }
            None => 0,
        });
        let links = self.links.iter().map(|link| link.url.len() + link.title.len());
        let beside = self.structured_json.len() + files.sum::<usize>() + links.sum::<usize>();
        self.text.len() + images.sum::<usize>() + beside
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
        let output = Output::structured(&[1, 2]).expect("JSON").file("a.csv", "text/csv", vec![0; 7]);
        assert_eq!(output.link("https://a/b", "x").size(), 5 + 5 + 8 + 7 + 11 + 1);
    }
}
