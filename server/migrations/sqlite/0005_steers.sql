-- Requests that handed messages to a run under way.

-- The run that a request steered, by the id of the request. Queries repeat these conditions word for word, else the
-- index is not used.
CREATE INDEX run_events_steers ON run_events (tenant, payload ->> '$.steer.id')
    WHERE kind = 'input_held' AND payload ->> '$.steer.id' IS NOT NULL;
