//! The command as a process, against a scripted server or a real one.

#[cfg(unix)]
mod approve;
#[cfg(unix)]
mod blob;
#[cfg(unix)]
mod chat;
#[cfg(unix)]
mod chat_look;
#[cfg(unix)]
mod chat_questions;
#[cfg(unix)]
mod chat_queue;
#[cfg(unix)]
mod chat_reopened;
#[cfg(unix)]
mod chat_terminal;
#[cfg(unix)]
mod database;
mod demo;
#[cfg(unix)]
mod hangup;
#[cfg(unix)]
mod health;
mod host;
mod process;
#[cfg(unix)]
mod pty;
#[cfg(unix)]
mod queue;
mod run;
#[cfg(unix)]
mod run_terminal;
#[cfg(unix)]
mod screens;
#[cfg(unix)]
mod security;
#[cfg(unix)]
mod served;
#[cfg(unix)]
mod sessions;
#[cfg(unix)]
mod setup;
mod todos;
#[cfg(unix)]
mod tools;
#[cfg(unix)]
mod top;
mod usage;
#[cfg(unix)]
mod used;
