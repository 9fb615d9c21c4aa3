-- set: token_buckets_v1
-- revision: 1
-- requires: none

-- Permits of token buckets.

-- Takes up to p_permits whole permits from a token bucket: core.token_bucket.taken. No row: granted is NULL. A
-- refusal writes nothing. Index: the primary key.
CREATE OR REPLACE FUNCTION forge.take_permits_v1(
    p_now bigint, p_scope text, p_permits integer,
    OUT granted integer, OUT retry_s double precision)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v_bucket forge.token_buckets%ROWTYPE;
    v_tokens double precision;
BEGIN
    SELECT * INTO v_bucket FROM forge.token_buckets WHERE scope = p_scope FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    v_tokens := least(v_bucket.capacity, v_bucket.tokens
        + greatest(p_now - v_bucket.at, 0) / 1000000.0::double precision * v_bucket.refill_per_s);
    granted := least(greatest(p_permits, 0), floor(v_tokens + 0.000001::double precision))::integer;
    v_tokens := greatest(v_tokens - granted, 0);
    IF granted > 0 THEN
        UPDATE forge.token_buckets SET tokens = v_tokens, at = greatest(p_now, v_bucket.at)
        WHERE scope = p_scope;
    END IF;
    IF granted < p_permits AND v_bucket.refill_per_s > 0 THEN
        retry_s := (ceil((1 - v_tokens) / v_bucket.refill_per_s * 1000000)
            + greatest(v_bucket.at - p_now, 0)) / 1000000;
    END IF;
END
$$;
