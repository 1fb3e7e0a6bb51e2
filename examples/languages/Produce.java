// Adds jobs with JDBC: one, many, at most one of a key, and one in a transaction.
// JDBC_URL is the database as JDBC writes it: jdbc:postgresql://host:port/database?user=…
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;

class Produce {
    // Runs a statement whose parameters are all texts, and returns its first value.
    static String run(Connection connection, String sql, String... values) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement(sql)) {
            for (int i = 0; i < values.length; i++) statement.setString(i + 1, values[i]);
            if (!statement.execute()) return null;
            try (ResultSet rows = statement.getResultSet()) {
                return rows.next() ? rows.getString(1) : null;
            }
        }
    }

    public static void main(String[] none) throws SQLException {
        try (Connection connection = DriverManager.getConnection(System.getenv("JDBC_URL"))) {
            // One job. The answer is its id.
            System.out.println("job " + run(connection, "select jobq.enqueue('resize-java', args => ?::jsonb, queue => 'images')", "{\"file\": \"a.png\"}"));

            // Many in one statement.
            run(connection, "select id from jobq.enqueue_many(?::jsonb)",
                "[{\"kind\": \"resize-java\", \"args\": {\"file\": \"b.png\"}}, {\"kind\": \"resize-java\", \"args\": {\"file\": \"c.png\"}}]");

            // At most one unfinished job with this key: the second call returns the first one's id.
            for (int i = 0; i < 2; i++) {
                run(connection, "select jobq.enqueue('resize-java', args => ?::jsonb, unique_key => ?)", "{\"file\": \"d.png\"}", "d.png");
            }

            // The job exists if the transaction commits, and only then.
            connection.setAutoCommit(false);
            for (boolean commit : new boolean[] {true, false}) {
                run(connection, "insert into public.picture (language, file) values ('java', 'e.png')");
                run(connection, "select jobq.enqueue('resize-java', args => ?::jsonb)", "{\"file\": \"e.png\"}");
                if (commit) connection.commit(); else connection.rollback();
            }
        }
    }
}
