package crashtest

// WaitingFor has the sessions that wait for a row that the transaction has locked.
var WaitingFor = waitingFor
