//! Takes the terminal for a program on the whole screen, and restores it afterwards.

use std::{
    io::{self, Stdout, stdout},
    panic,
    sync::{
        Once,
        atomic::{AtomicBool, Ordering},
    },
};

use crossterm::{
    cursor::Show,
    event::{DisableBracketedPaste, EnableBracketedPaste},
    execute,
    terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode},
};
use ratatui::Terminal;

use super::backend::PaletteBackend;
use crate::terminal::style::Style;

/// True while the program has the terminal. It is global, because the panic hook must know.
static TAKEN: AtomicBool = AtomicBool::new(false);
static HOOK: Once = Once::new();

/// The terminal in raw mode, with its alternate screen. It is restored on drop, and before a panic's message is printed.
pub(crate) struct Screen {
    pub(crate) terminal: Terminal<PaletteBackend<Stdout>>,
}

impl Screen {
    pub(crate) fn take() -> io::Result<Screen> {
        HOOK.call_once(restore_on_panic);
        TAKEN.store(true, Ordering::SeqCst);
        match Screen::enter() {
            Ok(screen) => Ok(screen),
            Err(error) => {
                restore();
                Err(error)
            }
        }
    }

    fn enter() -> io::Result<Screen> {
        enable_raw_mode()?;
        execute!(stdout(), EnterAlternateScreen, EnableBracketedPaste)?;
        let colours = Style::of(&stdout()).has_colours();
        Ok(Screen { terminal: Terminal::new(PaletteBackend::new(stdout(), colours))? })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

fn restore_on_panic() {
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        restore();
        report(info);
    }));
}

/// Restores the terminal, if the program has it. Errors are ignored, because there is no place to report them.
fn restore() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        let _ = execute!(stdout(), DisableBracketedPaste, LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::io::Read as _;

    use portable_pty::{CommandBuilder, PtySize, native_pty_system};

    use super::Screen;
    use crate::environment;

    /// Environment variable of the child process that panics.
    const PANICS: &str = "AGENTLOOP_TEST_PANICS";
    const MESSAGE: &str = "a fault that nobody foresaw";

    /// Runs this test again in a child process with a terminal, where it panics with the screen taken.
    #[test]
    fn a_panic_gives_the_terminal_back() {
        if environment::variable_os(PANICS).is_some() {
            let _screen = Screen::take().expect("there is a terminal");
            panic!("{MESSAGE}");
        }
        let size = PtySize { rows: 24, cols: 80, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).expect("there are pseudo-terminals");
        let before = format!("{:?}", pair.master.get_termios());
        let mut command = CommandBuilder::new(std::env::current_exe().expect("it runs"));
        command.args(["--exact", "chat::screen::tests::a_panic_gives_the_terminal_back", "--nocapture"]);
        command.env(PANICS, "1");
        command.env("RUST_BACKTRACE", "0");
        let mut child = pair.slave.spawn_command(command).expect("it runs");
        drop(pair.slave);
        let mut drawn = Vec::new();
        // On some systems the end of a terminal's output is an error.
        let _ = pair.master.try_clone_reader().expect("a reader").read_to_end(&mut drawn);
        assert!(!child.wait().expect("it ran").success());

        let mut screen = vt100::Parser::default();
        screen.process(&drawn);
        let drawn = String::from_utf8_lossy(&drawn);
        assert!(drawn.contains("\x1b[?1049h"), "it took the screen: {drawn:?}");
        let screen = screen.screen();
        assert!(
            !screen.alternate_screen() && !screen.hide_cursor() && !screen.bracketed_paste(),
            "{drawn:?}"
        );
        assert!(screen.contents().contains(MESSAGE), "what went wrong can be read: {}", screen.contents());
        assert_eq!(format!("{:?}", pair.master.get_termios()), before);
    }
}
