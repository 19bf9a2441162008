//! Conversion of what a result of a tool has beside its text: files, links and pictures.

use agentloop_core::blob::BlobDigest;
use agentloop_core::limits::{
    FILE_TEXT_BYTES_MAX, FILES_PER_RESULT_MAX, LINK_BYTES_MAX, LINKS_PER_RESULT_MAX, SHORT_TEXT_BYTES_MAX,
};
use agentloop_core::message::{Attachments, File, FileSource, Image, Link};
use agentloop_core::text::link::is_link;
use agentloop_proto::v1::{self, file_content, image};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{Parsed, at_most, malformed};

/// The size of a result that bounds apply to, in bytes: its contents, without the overhead of the encoding.
pub(in crate::grpc::convert) fn result_bytes(
    output: &str,
    images: &[v1::Image],
    structured_json: &str,
    files: &[v1::FileContent],
    links: &[v1::Link],
) -> usize {
    let images: usize = images.iter().map(image_size).sum();
    output.len() + images + structured_json.len() + file_bytes(files) + link_bytes(links)
}

fn file_bytes(files: &[v1::FileContent]) -> usize {
    let bytes = |file: &v1::FileContent| match &file.source {
        Some(file_content::Source::Data(data)) => data.len(),
        Some(file_content::Source::BlobDigest(digest)) => digest.len(),
        None => 0,
    };
    files.iter().map(|file| file.name.len() + file.media_type.len() + bytes(file)).sum()
}

fn link_bytes(links: &[v1::Link]) -> usize {
    links.iter().map(|link| link.url.len() + link.title.len()).sum()
}

/// Converts what a result has beside its text and pictures.
pub(in crate::grpc::convert) fn attachments(
    structured_json: String,
    files: Vec<v1::FileContent>,
    links: Vec<v1::Link>,
) -> Parsed<Attachments> {
    if files.len() > FILES_PER_RESULT_MAX {
        return malformed("call_result.files", format!("must be at most {FILES_PER_RESULT_MAX}"));
    }
    if links.len() > LINKS_PER_RESULT_MAX {
        return malformed("call_result.links", format!("must be at most {LINKS_PER_RESULT_MAX}"));
    }
    let structured = Some(structured_json).filter(|json| !json.is_empty());
    Ok(Attachments {
        structured,
        files: files.into_iter().map(file).collect::<Parsed<_>>()?,
        links: links.into_iter().map(link).collect::<Parsed<_>>()?,
    })
}

fn file(file: v1::FileContent) -> Parsed<File> {
    at_most("call_result.files.name", file.name.len(), FILE_TEXT_BYTES_MAX)?;
    at_most("call_result.files.media_type", file.media_type.len(), FILE_TEXT_BYTES_MAX)?;
    let is_folder = matches!(&*file.name, "" | "." | "..") || file.name.contains(['/', '\\']);
    if is_folder || file.name.chars().any(char::is_control) {
        return malformed("call_result.files.name", "must be a name without folders");
    }
    let data = match file.source {
        Some(file_content::Source::Data(data)) => data,
        Some(file_content::Source::BlobDigest(digest)) => {
            let digest = BlobDigest::parse(digest)
                .or_else(|bad| malformed("call_result.files.blob_digest", bad.to_string()))?;
            let source = FileSource::Blob { digest };
            return Ok(File { name: file.name, media_type: file.media_type, size: file.size_bytes, source });
        }
        None => return malformed("call_result.files.data", "or blob_digest is required"),
    };
    let size = data.len() as u64;
    if file.size_bytes != 0 && file.size_bytes != size {
        return malformed("call_result.files.size_bytes", "must be the length of the data");
    }
    let source = FileSource::Inline { base64: STANDARD.encode(data) };
    Ok(File { name: file.name, media_type: file.media_type, size, source })
}

fn link(link: v1::Link) -> Parsed<Link> {
    at_most("call_result.links.title", link.title.len(), SHORT_TEXT_BYTES_MAX)?;
    if !is_link(&link.url) {
        return malformed(
            "call_result.links.url",
            format!("must be an https: or http: address of at most {LINK_BYTES_MAX} bytes"),
        );
    }
    Ok(Link { url: link.url, title: link.title })
}

fn image_size(image: &v1::Image) -> usize {
    let source = match &image.source {
        Some(image::Source::Url(url)) => url.len(),
        Some(image::Source::Data(data)) => data.len(),
        None => 0,
    };
    source + image.media_type.len()
}

pub(super) fn picture(image: v1::Image) -> Parsed<Image> {
    match image.source {
        Some(image::Source::Url(url)) if url.starts_with("https:") || url.starts_with("http:") => {
            Ok(Image::Url { url })
        }
        Some(image::Source::Url(_)) => malformed("call_result.images.url", "must be an https: or http: URL"),
        Some(image::Source::Data(data)) if data.is_empty() => {
            malformed("call_result.images.data", "must not be empty")
        }
        Some(image::Source::Data(data)) => match Image::checked_media_type(&image.media_type) {
            Some(media_type) => Ok(Image::Inline { media_type, base64: STANDARD.encode(data) }),
            None => malformed("call_result.images.media_type", "must be an image type such as image/png"),
        },
        None => malformed("call_result.images.source", "is required"),
    }
}
