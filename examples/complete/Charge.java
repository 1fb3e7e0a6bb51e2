// Charges a customer, and completes the job in the same transaction: both or neither.
//
// Needs the JDBC driver (apt-get install libpostgresql-jdbc-java) in the class path. With
// "die" in the args, the first run is killed before or after its commit.
import java.io.IOException;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.SQLException;

class Charge {
    public static void main(String[] none) throws IOException, SQLException {
        String args = new String(System.in.readAllBytes());
        long job = Long.parseLong(System.getenv("JOBQ_JOB_ID"));
        boolean first = "1".equals(System.getenv("JOBQ_ATTEMPT"));

        try (Connection connection = DriverManager.getConnection(System.getenv("JDBC_URL"))) {
            connection.setAutoCommit(false); // what has no commit is rolled back
            try (PreparedStatement pay = connection.prepareStatement("insert into public.payment (kind, job) values ('java', ?)")) {
                pay.setLong(1, job);
                pay.execute();
            }
            // Throws with the SQLSTATE JQ005 when another run has the job.
            try (PreparedStatement complete = connection.prepareStatement("select jobq.complete(?, ?, ?::jsonb)")) {
                complete.setLong(1, job);
                complete.setString(2, System.getenv("JOBQ_RUN_TOKEN"));
                complete.setString(3, "{\"paid\": true}");
                complete.execute();
            }
            if (first && args.contains("\"before\"")) Runtime.getRuntime().halt(137);
            connection.commit();
        }
        if (first && args.contains("\"after\"")) Runtime.getRuntime().halt(137);
        System.out.println("charged");
    }
}
