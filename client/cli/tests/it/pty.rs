//! Runs the command in a pseudo-terminal, whose screen tests can read.

use std::{
    io::{Read as _, Write},
    num::NonZeroU16,
    path::Path,
    sync::{Arc, Mutex},
};

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};
use tokio::sync::watch;

use agentloop_client_testing::timeout::TEST_TIMEOUT;

/// Size of the screen unless a test chooses another.
const ROWS: u16 = 30;
const COLUMNS: u16 = 100;

/// A terminal with the command in it. The command ends when this is dropped.
pub(crate) struct Pty {
    child: Option<Box<dyn Child + Send + Sync>>,
    input: Box<dyn Write + Send>,
    screen: Arc<Mutex<vt100::Parser<Titles>>>,
    /// Everything that the command has written.
    written: Arc<Mutex<Vec<u8>>>,
    drawn: watch::Receiver<u64>,
    /// Keeps the terminal open.
    master: Box<dyn MasterPty + Send>,
    /// The settings of the terminal before the command changed them.
    before: String,
}

/// Every window title that the command has set.
#[derive(Default)]
pub(crate) struct Titles(pub(crate) Vec<String>);

impl vt100::Callbacks for Titles {
    fn set_window_title(&mut self, _: &mut vt100::Screen, title: &[u8]) {
        self.0.push(String::from_utf8_lossy(title).into_owned());
    }
}

impl Pty {
    /// Starts the command with these arguments, against this server, in this directory.
    pub(crate) fn start(url: &str, args: &[&str], directory: &Path) -> Pty {
        Pty::start_with(url, args, directory, &[])
    }

    /// The same with these environment variables.
    pub(crate) fn start_with(url: &str, args: &[&str], directory: &Path, variables: &[(&str, &str)]) -> Pty {
        Pty::start_local(&[args, &["--server", url]].concat(), directory, variables)
    }

    /// The same for a command that talks to no server.
    pub(crate) fn start_local(args: &[&str], directory: &Path, variables: &[(&str, &str)]) -> Pty {
        Pty::start_sized(args, directory, variables, (ROWS, COLUMNS))
    }

    /// The same on a screen of this many rows and columns.
    pub(crate) fn start_sized(
        args: &[&str],
        directory: &Path,
        variables: &[(&str, &str)],
        (rows, columns): (u16, u16),
    ) -> Pty {
        let size = PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).expect("there are pseudo-terminals");
        let before = settings(pair.master.as_ref());
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_agentloop"));
        command.args(args);
        command.cwd(directory);
        command.env("TERM", "xterm-256color");
        command.env("USER", "tester");
        command.env_remove("AGENTLOOP_TOKEN");
        command.env_remove("NO_COLOR");
        variables.iter().for_each(|(name, value)| command.env(name, value));
        let child = pair.slave.spawn_command(command).expect("the command was built");
        drop(pair.slave);

        let mut output = pair.master.try_clone_reader().expect("a reader");
        let size = |n| NonZeroU16::new(n).expect("not zero");
        let parser = vt100::Parser::new_with_callbacks(size(rows), size(columns), 0, Titles::default());
        let screen = Arc::new(Mutex::new(parser));
        let (drawing, drawn) = watch::channel(0);
        let shared = Arc::clone(&screen);
        let written = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&written);
        std::thread::spawn(move || {
            let mut bytes = [0; 8192];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                all.lock().expect("no test panics with it").extend_from_slice(&bytes[..count]);
                shared.lock().expect("no test panics with it").process(&bytes[..count]);
                drawing.send_modify(|n| *n += 1);
            }
        });
        let input = pair.master.take_writer().expect("a writer");
        Pty { child: Some(child), input, screen, written, drawn, master: pair.master, before }
    }

    /// Types text. Control characters are keys: `\r` is Enter, `\x03` is ctrl-C.
    pub(crate) fn types(&mut self, keys: &str) {
        self.input
            .write_all(keys.as_bytes())
            .and_then(|()| self.input.flush())
            .expect("the terminal is there");
    }

    /// Pastes text, with the marks of bracketed paste.
    pub(crate) fn pastes(&mut self, text: &str) {
        self.types(&format!("\x1b[200~{text}\x1b[201~"));
    }

    /// Changes the size of the window.
    pub(crate) fn resize(&self, rows: u16, cols: u16) {
        let mut screen = self.screen.lock().expect("no test panics with it");
        let size = |n| NonZeroU16::new(n).expect("not zero");
        screen.set_size(size(rows), size(cols));
        // The screen is resized first, so that the command draws on one of the new size.
        let window = PtySize { rows, cols, pixel_width: 0, pixel_height: 0 };
        self.master.resize(window).expect("the terminal is there");
    }

    /// The text on the screen.
    pub(crate) fn text(&self) -> String {
        self.screen.lock().expect("no test panics with it").screen().contents()
    }

    /// The colours on the screen, other than the terminal's own two.
    pub(crate) fn colours(&self) -> Vec<vt100::Color> {
        let screen = self.screen.lock().expect("no test panics with it");
        let (rows, columns) = screen.screen().size();
        let cells = (0..rows.get()).flat_map(|row| (0..columns.get()).map(move |column| (row, column)));
        let cells = cells.filter_map(|(row, column)| screen.screen().cell(row, column));
        let colours = cells.flat_map(|cell| [cell.fgcolor(), cell.bgcolor()]);
        colours.filter(|colour| *colour != vt100::Color::Default).collect()
    }

    /// The parameters of each sequence for a colour or a style that the command has written, such as `0;33`.
    pub(crate) fn style_sequences(&self) -> Vec<String> {
        let written = self.written.lock().expect("no test panics with it");
        let written = String::from_utf8_lossy(&written);
        let sequences = written.split("\x1b[").skip(1).filter_map(|rest| Some(rest.split_once('m')?.0));
        let is_style = |sequence: &&str| sequence.chars().all(|c| c.is_ascii_digit() || c == ';');
        sequences.filter(is_style).map(str::to_owned).collect()
    }

    /// The text that is shown in reverse, which is what is picked in a list.
    fn reversed(&self) -> String {
        let screen = self.screen.lock().expect("no test panics with it");
        let (rows, columns) = screen.screen().size();
        let cells = (0..rows.get()).flat_map(|row| (0..columns.get()).map(move |column| (row, column)));
        let cells = cells.filter_map(|(row, column)| screen.screen().cell(row, column));
        cells.filter(|cell| cell.inverse()).map(|cell| cell.contents()).collect()
    }

    /// The window titles so far.
    pub(crate) fn titles(&self) -> Vec<String> {
        self.screen.lock().expect("no test panics with it").callbacks().0.clone()
    }

    /// True while the command shows the alternate screen.
    pub(crate) fn is_taken(&self) -> bool {
        self.screen.lock().expect("no test panics with it").screen().alternate_screen()
    }

    /// Waits until the screen shows this text.
    pub(crate) async fn sees(&mut self, expected: &str) {
        self.until(&format!("{expected:?} to be seen"), |text| text.contains(expected)).await;
    }

    /// Waits until the screen no longer shows this text.
    pub(crate) async fn sees_no(&mut self, gone: &str) {
        self.until(&format!("{gone:?} to be gone"), |text| !text.contains(gone)).await;
    }

    /// Waits for a state of the screen. Each state is checked once, so it may be half of a frame.
    pub(crate) async fn until(&mut self, what: &str, is: impl Fn(&str) -> bool) {
        self.until_it(what, |pty| is(&pty.text())).await;
    }

    /// Waits until this text is shown in reverse.
    pub(crate) async fn picks(&mut self, expected: &str) {
        self.until_it(&format!("{expected:?} to be picked"), |pty| pty.reversed().contains(expected)).await;
    }

    async fn until_it(&mut self, what: &str, is: impl Fn(&Pty) -> bool) {
        let waiting = async {
            while !is(self) {
                // The output has ended: nothing more will be drawn.
                if self.drawn.changed().await.is_err() {
                    return is(self);
                }
            }
            true
        };
        let seen = tokio::time::timeout(TEST_TIMEOUT, waiting).await.unwrap_or(false);
        assert!(seen, "waited for {what}; the screen shows:\n{}", self.text());
    }

    /// Sends a signal, such as `TERM`.
    pub(crate) async fn signal(&self, signal: &str) {
        let pid = self.child.as_ref().and_then(|child| child.process_id()).expect("it runs").to_string();
        let sent = tokio::process::Command::new("kill").args([&format!("-{signal}"), &pid]).status().await;
        assert!(sent.expect("there is a kill").success());
    }

    /// Checks that the terminal has its first settings again.
    #[track_caller]
    fn is_given_back(&self) {
        let text = self.text();
        assert!(!self.is_taken(), "the other screen is shown:\n{text}");
        {
            let screen = self.screen.lock().expect("no test panics with it");
            assert!(!screen.screen().hide_cursor(), "the cursor is hidden:\n{text}");
            assert!(!screen.screen().bracketed_paste(), "pastes are marked:\n{text}");
        }
        assert_eq!(settings(self.master.as_ref()), self.before, "the terminal is set otherwise:\n{text}");
    }

    /// Waits for the end of the command. Returns its exit code and the text on the screen.
    pub(crate) async fn ends(mut self) -> (u32, String) {
        let mut child = self.child.take().expect("it was not waited for yet");
        let waiting = tokio::task::spawn_blocking(move || child.wait());
        let status = tokio::time::timeout(TEST_TIMEOUT, waiting).await.expect("it ends").expect("no panic");
        // All output is read when the terminal reports its end.
        while self.drawn.changed().await.is_ok() {}
        self.is_given_back();
        (status.expect("it ran").exit_code(), self.text())
    }
}

/// The settings of a terminal, such as echo and line mode.
fn settings(terminal: &dyn MasterPty) -> String {
    format!("{:?}", terminal.get_termios())
}

impl Drop for Pty {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // The kill fails if the command has ended.
            let _ = child.kill();
        }
    }
}
