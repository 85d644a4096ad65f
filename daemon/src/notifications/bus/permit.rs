//! Who may change anything over D-Bus: polkit decides where it is on the bus, otherwise the caller's user and groups.

use std::collections::HashMap;

use zbus::Connection;
use zbus::fdo::{DBusProxy, Error, Result};
use zbus::message::{Flags, Header};
use zbus::names::{BusName, UniqueName};

/// The action that polkit is asked about; `systemd/org.weir.Weir1.policy` declares it.
const ACTION: &str = "org.weir.Weir1.manage";
/// Its members may change things where there is no polkit.
const GROUP: &str = "weir";
const POLKIT: &str = "org.freedesktop.PolicyKit1";
/// Polkit may ask the user.
const ASK: u32 = 1;

/// Whether the caller may change anything.
///
/// # Errors
/// `AccessDenied` if not, or if that cannot be told.
pub(super) async fn permit(connection: &Connection, header: &Header<'_>) -> Result<()> {
    let caller = header.sender().ok_or_else(|| denied("the caller has no name on the bus"))?;
    let bus = DBusProxy::new(connection).await?;
    if has_polkit(&bus).await? {
        let ask = header.primary().flags().contains(Flags::ALLOW_INTERACTIVE_AUTH);
        return ask_polkit(connection, caller, ask).await;
    }
    let who = bus.get_connection_credentials(BusName::Unique(caller.clone())).await?;
    let own = nix::unistd::geteuid().as_raw();
    let user = who.unix_user_id().is_some_and(|user| user == 0 || user == own);
    let groups = who.unix_group_ids().map(Vec::as_slice).unwrap_or_default();
    let ours = nix::unistd::Group::from_name(GROUP).ok().flatten();
    if user || ours.is_some_and(|ours| groups.contains(&ours.gid.as_raw())) {
        return Ok(());
    }
    Err(denied(&format!("for root, the daemon's own user and the group {GROUP} only")))
}

async fn has_polkit(bus: &DBusProxy<'_>) -> Result<bool> {
    let name = BusName::try_from(POLKIT).map_err(|error| denied(&error.to_string()))?;
    Ok(bus.name_has_owner(name.clone()).await? || bus.list_activatable_names().await?.contains(&name.into()))
}

/// Asks polkit about the caller; whatever goes wrong is a no.
async fn ask_polkit(connection: &Connection, caller: &UniqueName<'_>, ask: bool) -> Result<()> {
    let subject = ("system-bus-name", HashMap::from([("name", zbus::Variant::from(caller.as_str()))]));
    let details: HashMap<&str, &str> = HashMap::new();
    let question = (subject, ACTION, details, if ask { ASK } else { 0 }, "");
    let (path, interface) = ("/org/freedesktop/PolicyKit1/Authority", "org.freedesktop.PolicyKit1.Authority");
    let answer =
        connection.call_method(Some(POLKIT), path, Some(interface), "CheckAuthorization", &question).await;
    let answer = answer.map_err(|error| denied(&format!("polkit gives no answer: {error}")))?;
    let verdict: zbus::Result<(bool, bool, HashMap<String, String>)> = answer.body().deserialize();
    match verdict {
        Ok((true, ..)) => Ok(()),
        Ok((false, true, _)) => Err(Error::InteractiveAuthorizationRequired(ACTION.to_owned())),
        Ok((false, false, _)) => Err(denied("polkit does not authorise it")),
        Err(error) => Err(denied(&format!("polkit gives no answer: {error}"))),
    }
}

fn denied(reason: &str) -> Error {
    Error::AccessDenied(format!("{ACTION}: {reason}"))
}
