-- The beginning of the caller's first message, on one line: at most 200 characters. A run that is there gets it from its
-- journal, where the message is among the first events. A run whose first messages have no text has none.
ALTER TABLE runs ADD COLUMN preview TEXT NOT NULL DEFAULT '';

UPDATE runs SET preview = substr(trim(replace(replace(replace(coalesce((
    SELECT p.value ->> '$.text'
    FROM run_events AS e, json_each(e.payload, '$.message.parts') AS p
    WHERE e.run_no = runs.run_no AND e.seq <= 64
      AND e.payload ->> '$.kind' IN ('input_added', 'input_held')
      AND e.payload ->> '$.message.role' = 'user'
      AND trim(p.value ->> '$.text') <> ''
    ORDER BY e.seq, p.key LIMIT 1), ''), char(10), ' '), char(13), ' '), char(9), ' ')), 1, 200);
