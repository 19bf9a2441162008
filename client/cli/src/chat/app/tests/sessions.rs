//! Sessions that are opened, listed, changed, and that others work in.

use super::*;

#[test]
fn a_session_is_opened_with_what_was_said() {
    let (mut app, first) = App::new(options(), Some("s".into()));
    assert_eq!(first, opens("s"));
    let entry = |run_id: &str, text: &str| Entry {
        entry_no: 1,
        run_id: run_id.into(),
        message: Some(said(text)),
        ..Entry::default()
    };
    let entries = vec![entry("old", "before"), entry("live", "now")];
    let opened = OpenedSession { session: session("s", "live"), entries, ..OpenedSession::default() };
    let then = [Command::FollowRun("live".into()), Command::ListQueue("s".into())];
    assert_eq!(app.handle(Event::SessionOpened(Box::new(opened))), then);
    assert_eq!(users(&app), ["before"], "the live run's words come with its events");
    assert!(!app.session.opening);
}

#[test]
fn what_is_sent_before_the_session_is_read_is_sent_afterwards() {
    let mut app = App::new(options(), Some("s".into())).0;
    assert_eq!(send(&mut app, "early"), []);
    assert_eq!(send(&mut app, "also early"), []);
    write(&mut app, "half a wo");
    let then = app.handle(Event::SessionOpened(Box::new(OpenedSession {
        session: session("s", ""),
        ..OpenedSession::default()
    })));
    assert!(
        matches!(&then[..], [Command::Start(first), Command::SendToBusy(second)] if second.prompt == "also early" && first.prompt == "early"),
        "{then:?}"
    );
    assert_eq!((users(&app), app.editor.text()), (vec!["early".into()], "half a wo".into()));
    assert_eq!(app.hint, None, "the run's state is seen, and not what was to come");
}

#[test]
fn what_was_sent_to_a_session_that_cannot_be_read_is_given_back() {
    let mut app = App::new(options(), Some("s".into())).0;
    send(&mut app, "early");
    write(&mut app, "and this");
    assert_eq!(app.handle(Event::SessionNotOpened("no".into())), []);
    assert_eq!((app.editor.text(), users(&app)), ("early\nand this".into(), vec![]));
    assert_eq!(app.hint, None, "nothing is sent any more");
}

#[test]
fn a_part_of_a_session_says_so() {
    let mut app = App::new(options(), Some("s".into())).0;
    let entries = vec![Entry { entry_no: 8, message: Some(said("late")), ..Entry::default() }];
    app.handle(Event::SessionOpened(Box::new(OpenedSession {
        session: session("s", ""),
        entries,
        ..OpenedSession::default()
    })));
    assert_eq!(notes(&app), ["… earlier messages are not shown"]);
}

#[test]
fn a_session_that_nobody_waits_for_is_not_shown() {
    let mut app = App::new(options(), Some("s".into())).0;
    app.handle(Event::SessionOpened(Box::new(OpenedSession {
        session: session("other", "live"),
        ..OpenedSession::default()
    })));
    assert!(app.session.opening && app.live.is_none());
    app.handle(Event::SessionNotOpened("no".into()));
    assert_eq!((app.session.clone(), notes(&app)), (CurrentSession::default(), vec!["no".into()]));
}

fn listed(ids: &[&str]) -> Vec<SessionOverview> {
    let overview = |id: &&str| SessionOverview { session: session(id, ""), ..SessionOverview::default() };
    ids.iter().map(overview).collect()
}

#[test]
fn the_list_of_sessions_filters_as_one_types() {
    let mut app = chat();
    ctrl(&mut app, 'o');
    app.handle(Event::Sessions(Ok(listed(&["north", "quiet", "nothing"]))));
    write(&mut app, "QU");
    assert_eq!(press(&mut app, KeyCode::Enter), opens("quiet"));

    let mut app = chat();
    ctrl(&mut app, 'o');
    app.handle(Event::Sessions(Ok(listed(&["north", "quiet", "nothing"]))));
    write(&mut app, "zzz");
    assert_eq!(press(&mut app, KeyCode::Enter), [], "nothing fits, and no new session begins");
    (0..3).for_each(|_| drop(press(&mut app, KeyCode::Backspace)));
    write(&mut app, "no");
    press(&mut app, KeyCode::Down);
    assert_eq!(press(&mut app, KeyCode::Enter), opens("nothing"));
}

#[test]
fn one_switches_between_sessions() {
    let mut app = running();
    assert_eq!(ctrl(&mut app, 'o'), [Command::ListSessions]);
    assert!(app.live.is_some(), "looking is not switching");
    app.handle(Event::Sessions(Ok(listed(&["s-1", "s-2"]))));
    press(&mut app, KeyCode::Down);
    press(&mut app, KeyCode::Down);
    assert_eq!(press(&mut app, KeyCode::Enter), opens("s-2"));
    assert!(app.live.is_none() && app.transcript.is_empty() && app.overlay.is_none());

    ctrl(&mut app, 'o');
    assert_eq!(press(&mut app, KeyCode::Enter), [Command::Unfollow], "the first line is a new one");
    assert_eq!(app.session.id, None);
}

#[test]
fn the_list_of_sessions_goes_round_and_closes() {
    for (keys, at) in [
        (&[KeyCode::Up][..], 2),
        (&[KeyCode::Down, KeyCode::Down, KeyCode::Down], 0),
        (&[KeyCode::End], 2),
        (&[KeyCode::PageDown], 2),
        (&[KeyCode::End, KeyCode::Home], 0),
        (&[KeyCode::End, KeyCode::PageUp], 0),
    ] {
        let mut app = chat();
        ctrl(&mut app, 'o');
        app.handle(Event::Sessions(Ok(listed(&["s-1", "s-2"]))));
        keys.iter().for_each(|key| assert_eq!(press(&mut app, *key), []));
        let Some(Overlay::Sessions(picker)) = &app.overlay else { panic!("{:?}", app.overlay) };
        assert_eq!(picker.at, at, "{keys:?}");
        press(&mut app, KeyCode::Esc);
        assert!(app.overlay.is_none());
    }
}

#[test]
fn a_new_session_leaves_the_old_run_alone() {
    let mut app = running();
    assert_eq!(ctrl(&mut app, 'n'), [Command::Unfollow]);
    assert_eq!((app.session.id.clone(), app.live.is_none(), app.transcript.is_empty()), (None, true, true));
}

fn session_run(app: &mut App, run_id: &str) -> Vec<Command> {
    app.handle(Event::SessionRun { session_id: "s".into(), run_id: run_id.into() })
}

#[test]
fn a_run_of_somebody_else_is_followed_at_once_or_after_the_one_on_the_screen() {
    let mut app = running();
    assert_eq!(session_run(&mut app, "r"), [], "it is the one that is followed");
    assert_eq!(session_run(&mut app, "other"), [Command::ListQueue("s".into())], "it may wait in the queue");
    assert_eq!(session_run(&mut app, "other"), [], "it is known");
    assert_eq!(stop_following(&mut app), [Command::FollowRun("other".into())]);
    assert_eq!(app.live.as_ref().map(|live| live.run_id.as_str()), Some("other"));
    assert_eq!(session_run(&mut app, "other"), [], "it is followed");

    let mut idle = running();
    stop_following(&mut idle);
    assert_eq!(session_run(&mut idle, "other"), [Command::FollowRun("other".into())]);
    let elsewhere = Event::SessionRun { session_id: "elsewhere".into(), run_id: "x".into() };
    assert_eq!(idle.handle(elsewhere), []);
}

#[test]
fn a_session_that_others_begin_is_opened() {
    let mut app = chat();
    app.session.id = Some("trip".into());
    let begun = || Event::SessionBegun { session_id: "trip".into() };
    assert_eq!(app.handle(Event::SessionNotWatched { session_id: "trip".into() }), []);
    assert_eq!(app.handle(begun()), opens("trip"));
    assert_eq!(app.handle(begun()), [], "it is watched now");
    let mut own = chat();
    own.session.id = Some("trip".into());
    send(&mut own, "hi");
    assert_eq!(own.handle(begun()), [], "its run is on the screen");
}

#[test]
fn a_session_that_others_begin_takes_nothing_from_the_person() {
    let not_yet = || Event::SessionNotWatched { session_id: "s".into() };
    let begun = || Event::SessionBegun { session_id: "s".into() };
    let mut app = App::new(options(), Some("s".into())).0;
    app.handle(not_yet());
    send(&mut app, "early");
    press(&mut app, KeyCode::F(1));
    assert_eq!(app.handle(begun()), opens("s"));
    assert!(matches!(app.overlay, Some(Overlay::Help(0))), "the window stays");
    let opened = OpenedSession { session: session("s", ""), ..OpenedSession::default() };
    let then = app.handle(Event::SessionOpened(Box::new(opened)));
    assert!(matches!(&then[..], [Command::Start(input)] if input.prompt == "early"), "{then:?}");

    // The prompt may have arrived: sent again, it must be the same run.
    let away = RpcError { unreachable: true, ..error("nobody there") };
    app.handle(not_yet());
    app.handle(Event::RunLost { run_id: "r".into(), error: away });
    let kept = app.unsent.clone();
    assert!(kept.is_some());
    assert_eq!(app.handle(begun()), opens("s"));
    assert_eq!((&app.unsent, app.editor.text().as_str()), (&kept, "early"));
}

#[test]
fn a_session_is_watched_from_its_first_event_on() {
    let mut app = chat();
    send(&mut app, "hi");
    let started = || run_event::Event::RunStarted(RunStarted::default());
    assert_eq!(happens(&mut app, RunStatus::Preparing, started()), [Command::WatchSession("s".into())]);
    let input = run_event::Event::InputMessage(InputMessage::default());
    assert_eq!(happens(&mut app, RunStatus::Preparing, input), []);
    let changed = Session { session_id: "s".into(), title: "A trip".into(), ..Session::default() };
    app.handle(Event::SessionChanged(Box::new(changed)));
    assert_eq!(app.session.title, "A trip");
}
