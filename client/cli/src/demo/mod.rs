//! `agentloop demo`: a server, a tool host, a run and an approval. Only the model may be a script.

mod files;
mod guide;
mod host_process;

use agentloop_client::{Client, v1::RunInput};

use self::{files::DemoFiles, host_process::HostProcess};
use crate::{
    args::{DemoArgs, Global, Output},
    embedded::EmbeddedServer,
    exit::{Exit, Failure},
    follow::FollowOptions,
    terminal::print,
    terminal::render::View,
    terminal::signals::EndSignals,
};

pub(crate) async fn demo(args: DemoArgs) -> Result<Exit, Failure> {
    let files = DemoFiles::prepare(&args)?;
    print::line(&format!("files    {}", files.dir.display()))?;
    let server = EmbeddedServer::start(&files.config).await?;
    // The next start uses the same address, so that the printed commands stay valid.
    files.write_config(server.address())?;
    let shown = show(&args, &files, &server).await;
    server.shutdown().await;
    shown
}

/// Runs the demo while the server runs.
async fn show(args: &DemoArgs, files: &DemoFiles, server: &EmbeddedServer) -> Result<Exit, Failure> {
    let url = format!("http://{}", server.address());
    print::line(&format!("server   {url}, model {}", files.model))?;
    let global = Global {
        server: url,
        token: None,
        tls_ca: None,
        tls_cert: None,
        tls_key: None,
        output: Output::Text,
        as_json: false,
    };
    let client = global.client()?;

    let mut host = HostProcess::start(&global.server, files)?;
    print::line(&format!("host     process {}, log {}", host.pid(), files.host_log.display()))?;
    host.wait_for_tools(&client).await?;

    let (exit, run_id) = play(client.clone(), &args.prompt).await?;
    guide::print(&client.get_run(&run_id).await?, files, server.address(), args.keep)?;
    if args.keep {
        // Listen first: a reader of the line may press ctrl-C at once.
        let mut signals = EndSignals::listen();
        print::line("\nthe server and its tool host go on until ctrl-C")?;
        signals.next().await;
    }
    host.stop().await?;
    Ok(exit)
}

/// Starts the run and follows it. The output says that the approval was given without asking.
async fn play(client: Client, prompt: &str) -> Result<(Exit, String), Failure> {
    print::line(&format!("prompt   {prompt}\n"))?;
    let input = RunInput { prompt: prompt.to_owned(), ..RunInput::default() };
    let signals = EndSignals::listen();
    let stream = client.run_stream(input).await?;
    let run_id = stream.run_id().to_owned();
    let follow = FollowOptions {
        client,
        view: View::in_one(),
        approve: Some("nobody was asked, because this is a demo; `agentloop run` asks"),
        person: None,
        wait: false,
        abort: true,
        decided_by: "the demo itself".to_owned(),
        signals,
        server_option: String::new(),
        says_next: false,
    };
    Ok((follow.until_end(stream).await?, run_id))
}
