//! The upward half of the shadow list: how the card's events affect receives.

use super::{Ended, Handed, Place, ShadowList};
use crate::matching::envelope::Envelope;
use crate::matching::offload::device::{Event, Message, ReceiveId, TagOffload};
use crate::matching::offload::outcome::{Breach, Outcome};

impl<T, D: TagOffload> ShadowList<T, D> {
    pub(super) fn handle(
        &mut self,
        event: Event<D::Eager, D::Offer>,
    ) -> Result<Ended<T, D>, Breach> {
        match event {
            Event::Added(id) => self.added(id).map(|()| None),
            Event::Refused(id) => self.refused(id),
            Event::Consumed { receive, envelope } => {
                self.consumed("consumed", receive, &envelope).map(|_| None)
            }
            Event::Completed {
                receive,
                envelope,
                len,
                inline,
            } => {
                let slot = self.consumed("completed", receive, &envelope)?;
                let value = self.receives.remove(slot).value;
                Ok(Some(Outcome::Delivered {
                    value,
                    envelope,
                    len,
                    inline,
                }))
            }
            Event::Offered {
                receive,
                envelope,
                offer,
            } => {
                let slot = self.consumed("offered", receive, &envelope)?;
                let value = self.receives.remove(slot).value;
                Ok(Some(Outcome::Matched {
                    value,
                    envelope,
                    message: Message::Rendezvous(offer),
                }))
            }
            Event::Unexpected { envelope, message } => self.handed_up(envelope, message),
            Event::Cancelled(id) => self.cancelled(id),
        }
    }

    fn added(&mut self, id: ReceiveId) -> Result<(), Breach> {
        self.adding = self.adding.saturating_sub(1);
        let slot = self.resolve("added", id)?;
        let place = &mut self.receives.get_mut(slot).place;
        *place = match *place {
            Place::Adding => Place::Listed,
            Place::Cancelling { added: false } => Place::Cancelling { added: true },
            _ => return Err(not_with_device("added", id)),
        };
        Ok(())
    }

    /// The card has not taken a receive after all, because a message was passing by.
    fn refused(&mut self, id: ReceiveId) -> Result<Ended<T, D>, Breach> {
        self.adding = self.adding.saturating_sub(1);
        self.counters.refused += 1;
        let Some(slot) = self.receives.resolve(id.0) else {
            return Ok(None); // That message has taken the receive already.
        };
        let receive = self.receives.get(slot);
        match receive.place {
            Place::Adding => self.wait_again(slot),
            Place::Cancelling { added: false } => {
                self.posted.cancel(receive.posted);
                return Ok(Some(Outcome::Cancelled(self.receives.remove(slot).value)));
            }
            _ => return Err(not_with_device("refused", id)),
        }
        Ok(None)
    }

    /// A message has taken a receive in the card. The software checks that it would have chosen the
    /// same receive.
    fn consumed(
        &mut self,
        event: &'static str,
        id: ReceiveId,
        envelope: &Envelope,
    ) -> Result<u32, Breach> {
        let slot = self.resolve(event, id)?;
        let receive = self.receives.get_mut(slot);
        match receive.place {
            Place::Consumed => return Ok(slot),
            Place::Listed | Place::Cancelling { added: true } => {}
            _ => return Err(not_with_device(event, id)),
        }
        if self.posted.peek_arrival(envelope) != Some(receive.posted) {
            return Err(Breach::Overtaken {
                envelope: *envelope,
                receive: id.to_bits(),
            });
        }
        receive.place = Place::Consumed;
        self.counters.matched += 1;
        self.posted.cancel(receive.posted);
        Ok(slot)
    }

    fn cancelled(&mut self, id: ReceiveId) -> Result<Ended<T, D>, Breach> {
        let slot = self.resolve("cancelled", id)?;
        let receive = self.receives.get(slot);
        if receive.place != (Place::Cancelling { added: true }) {
            return Err(not_with_device("cancelled", id));
        }
        self.posted.cancel(receive.posted);
        let value = self.receives.remove(slot).value;
        Ok(Some(Outcome::Cancelled(value)))
    }

    /// Matches in software a message for which the card had no receive.
    fn handed_up(&mut self, envelope: Envelope, message: Handed<D>) -> Result<Ended<T, D>, Breach> {
        self.seen += 1;
        let Some(slot) = self.posted.match_arrival(&envelope) else {
            self.unexpected.push(envelope, message);
            return Ok(None);
        };
        let id = self.id(slot);
        let value = match self.receives.get(slot).place {
            Place::Kept | Place::Waiting => self.leave(slot),
            // The receive is on its way to the card, which will refuse it, because the message was
            // handed up first.
            Place::Adding | Place::Cancelling { added: false } => {
                self.counters.raced += 1;
                self.device.cancel(id, true);
                self.receives.remove(slot).value
            }
            Place::Listed | Place::Cancelling { added: true } | Place::Consumed => {
                let receive = id.to_bits();
                return Err(Breach::NotMatched { envelope, receive });
            }
        };
        Ok(Some(Outcome::Matched {
            value,
            envelope,
            message,
        }))
    }

    fn resolve(&self, event: &'static str, id: ReceiveId) -> Result<u32, Breach> {
        let slot = self.receives.resolve(id.0);
        slot.ok_or_else(|| not_with_device(event, id))
    }
}

fn not_with_device(event: &'static str, id: ReceiveId) -> Breach {
    Breach::NotWithDevice {
        event,
        receive: id.to_bits(),
    }
}
