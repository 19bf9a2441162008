//! A session that is opened again, in the chat and by `sessions`.

use crate::{chat::talk, process::ended, served::Server};

#[tokio::test]
async fn titles_of_calls_and_the_tokens_so_far_are_there_again() {
    let server = Server::start().await;
    let _host = server.host().await;
    let mut chat = talk(&server, &["--session", "town"]).await;
    chat.types("how is the weather\r");
    chat.sees("Weather in Bergen  get_weather").await;
    chat.sees("It is clear there.").await;
    chat.sees("ready  ").await;
    let status = |screen: &str| {
        let counted = screen
            .lines()
            .find_map(|line| Some(line.split_once("ready  ")?.1.split_once(" out")?.0.to_owned()));
        counted.expect("the last line has the tokens")
    };
    let so_far = status(&chat.text());
    assert!(so_far.contains("tokens in") && !so_far.starts_with("0 tokens"), "{so_far}");
    chat.types("\x04");
    chat.ends().await;

    let mut chat = talk(&server, &["--session", "town"]).await;
    chat.sees("Weather in Bergen  get_weather").await;
    chat.until(&format!("the tokens {so_far}"), |screen| screen.contains(&so_far)).await;
    chat.types("\x04");
    chat.ends().await;
    let (code, shown, stderr) = ended(&server.url(), &["sessions", "town"]).await;
    assert_eq!(code, 0, "{stderr}");
    assert!(shown.contains("→ Weather in Bergen  get_weather"), "{shown}");
}
