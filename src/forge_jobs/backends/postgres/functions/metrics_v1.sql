-- set: metrics_v1
-- revision: 1
-- requires: none

-- Merging histograms during the roll-up.

-- The sum of two histograms; either may be NULL.
CREATE OR REPLACE FUNCTION forge.merge_histograms_v1(p_one jsonb, p_other jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN p_one IS NULL THEN p_other WHEN p_other IS NULL THEN p_one ELSE
        jsonb_build_object(
            'sum_s', COALESCE((p_one ->> 'sum_s')::double precision, 0)
                + COALESCE((p_other ->> 'sum_s')::double precision, 0),
            'buckets', (
                SELECT jsonb_object_agg(n.key, n.samples) FROM (
                    SELECT b.key, sum(b.value::bigint) AS samples FROM (
                        SELECT * FROM jsonb_each_text(p_one -> 'buckets')
                        UNION ALL
                        SELECT * FROM jsonb_each_text(p_other -> 'buckets')
                    ) AS b
                    GROUP BY b.key
                ) AS n
            )) END
$$;
