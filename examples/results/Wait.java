// Waits for jobs with JDBC: Wait.java JOB... JDBC_URL is the database as JDBC writes it.
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Objects;
import java.util.concurrent.ThreadLocalRandom;
import org.postgresql.PGConnection;

class Wait {
    // The job has failed or was cancelled, is not there, or has not ended in time.
    static class NotCompleted extends Exception {
        NotCompleted(String message) { super(message); }
    }

    // Returns the result of a job that has completed, as JSON, null if it gave none. The
    // connection commits each statement, and nobody else uses it meanwhile. A notification is
    // a hint: the job is looked at without one too, after a pause that grows to 10 s.
    static String await(Connection connection, long job, double limit, double pause) throws SQLException, NotCompleted {
        long me = ThreadLocalRandom.current().nextLong();
        String channel;
        try (Statement statement = connection.createStatement()) {
            ResultSet rows = statement.executeQuery("select jobq.channel('ended')");
            rows.next();
            channel = rows.getString(1);
            statement.execute("listen " + channel);
        }
        long until = System.nanoTime() + (long) (limit * 1e9);
        try (PreparedStatement announce = connection.prepareStatement("select jobq.await(?, array[?::bigint], '{}', '1 minute')");
             PreparedStatement look = connection.prepareStatement("select state, result, error from jobq.result(?)")) {
            announce.setLong(1, me);
            announce.setLong(2, job);
            look.setLong(1, job);
            while (true) {
                // For a minute from now on, the end of the job is notified. What was before is not: look.
                announce.execute();
                String state;
                try (ResultSet row = look.executeQuery()) {
                    if (!row.next()) throw new NotCompleted("there is no job " + job);
                    state = row.getString("state");
                    if (state.equals("completed")) return row.getString("result");
                    if (state.equals("failed") || state.equals("cancelled")) {
                        throw new NotCompleted("job " + job + " is " + state + ": " + Objects.requireNonNullElse(row.getString("error"), "no reason given"));
                    }
                }
                double left = (until - System.nanoTime()) / 1e9;
                if (left <= 0) throw new NotCompleted("job " + job + " has not ended in " + limit + " s: it is " + state);
                connection.unwrap(PGConnection.class).getNotifications(1 + (int) (Math.min(pause, left) * 1000)); // 0 would be for ever
                pause = Math.min(pause * 2, 10);
            }
        } finally {
            try (Statement statement = connection.createStatement()) {
                statement.execute("unlisten " + channel);
                statement.execute("select jobq.await_end(" + me + ")");
            }
        }
    }

    static double setting(String name, double otherwise) {
        return System.getenv(name) == null ? otherwise : Double.parseDouble(System.getenv(name));
    }

    public static void main(String[] jobs) throws SQLException {
        try (Connection connection = DriverManager.getConnection(System.getenv("JDBC_URL"))) {
            for (String job : jobs) {
                try {
                    System.out.println("job " + job + ": " + await(connection, Long.parseLong(job), setting("LIMIT", 60), setting("PAUSE", 1)));
                } catch (NotCompleted problem) {
                    System.out.println(problem.getMessage());
                }
            }
        }
    }
}
