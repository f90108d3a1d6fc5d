-- The three roles, made once by a database administrator (the bundled server does it itself):
--   psql "$ADMIN_URL" -v migrator_password=... -v app_password=... -f roles.sql
-- The owner cannot log in; only the migrator may act as it; the application owns nothing.
CREATE ROLE oncefence_owner NOLOGIN;
CREATE ROLE oncefence_migrator LOGIN NOINHERIT PASSWORD :'migrator_password';
CREATE ROLE oncefence_app LOGIN NOINHERIT PASSWORD :'app_password';
GRANT oncefence_owner TO oncefence_migrator;
CREATE SCHEMA oncefence AUTHORIZATION oncefence_owner;
GRANT USAGE ON SCHEMA oncefence TO oncefence_app;
GRANT USAGE ON SCHEMA oncefence TO oncefence_migrator;
-- Only these two may connect here: no other role of the server, a Runtime's least of all.
REVOKE ALL ON DATABASE :"DBNAME" FROM PUBLIC;
GRANT CONNECT ON DATABASE :"DBNAME" TO oncefence_migrator, oncefence_app;
