-- Roles with least rights for realms in PostgreSQL (15 or newer). Run it as a superuser in the database of the realms:
--
--     psql --dbname realms --single-transaction --set ON_ERROR_STOP=1 --file postgresql-roles.sql
--
-- Run it again after the first realm was founded, and after every upgrade: it grants the rights on the tables that exist
-- by then. It may be run any number of times. Passwords and pg_hba.conf are yours: ALTER ROLE world_engine PASSWORD ...
--
--   world_owner   owns schema and tables: founds realms, upgrades, `worldctl doctor --rebuild`
--   world_engine  servers, workers and programs: appends events, and cannot change or remove one
--   world_reader  reports and audits: reads

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['world_owner', 'world_engine', 'world_reader'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) THEN
            EXECUTE format('CREATE ROLE %I LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION', name);
        END IF;
        EXECUTE format('GRANT CONNECT ON DATABASE %I TO %I', current_database(), name);
        EXECUTE format('ALTER ROLE %I IN DATABASE %I SET search_path = world', name, current_database());
    END LOOP;
    EXECUTE format('REVOKE CREATE, TEMPORARY ON DATABASE %I FROM PUBLIC', current_database());
    EXECUTE format('ALTER ROLE world_reader IN DATABASE %I SET default_transaction_read_only = on', current_database());
END
$$;

CREATE SCHEMA IF NOT EXISTS world AUTHORIZATION world_owner;
REVOKE ALL ON SCHEMA world FROM PUBLIC, world_engine, world_reader;
REVOKE CREATE ON SCHEMA public FROM PUBLIC;
GRANT USAGE ON SCHEMA world TO world_engine, world_reader;

DO $$
DECLARE
    name text;
BEGIN
    FOR name IN SELECT relname FROM pg_class WHERE relnamespace = 'world'::regnamespace AND relkind IN ('r', 'v') LOOP
        EXECUTE format('REVOKE ALL ON world.%I FROM PUBLIC, world_engine, world_reader', name);
        EXECUTE format('GRANT SELECT ON world.%I TO world_engine, world_reader', name);
        IF name IN ('wp_event', 'wp_head') THEN
            EXECUTE format('GRANT INSERT ON world.%I TO world_engine', name);  -- append, and nothing else
        ELSIF name NOT IN ('wp_store', 'wp_log', 'wp_snapshot', 'world_events') THEN
            EXECUTE format('GRANT INSERT, UPDATE, DELETE ON world.%I TO world_engine', name);  -- derived from events
        END IF;
    END LOOP;
END
$$;
