package db

import (
	"errors"
	"reflect"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

var (
	errNoTx   = errors.New("the transaction is nil")
	errPoolTx = errors.New("a pool is in no transaction: give the transaction, or make the call without Tx")
	errIdleTx = errors.New("the connection is in no transaction")
)

// CheckTx refuses what cannot be in a caller's transaction: nil, and a pool, which takes another connection
// for each statement.
func CheckTx(tx DBTX) error {
	if IsNil(tx) {
		return errNoTx
	}
	if _, isPool := tx.(*pgxpool.Pool); isPool {
		return errPoolTx
	}
	return nil
}

// RequireTx is CheckTx, and also refuses a connection that is in no transaction.
func RequireTx(tx DBTX) error {
	if err := CheckTx(tx); err != nil {
		return err
	}
	var conn *pgx.Conn
	switch tx := tx.(type) {
	case *pgx.Conn:
		conn = tx
	case *pgxpool.Conn:
		conn = tx.Conn()
	}
	if conn != nil && conn.PgConn().TxStatus() == 'I' {
		return errIdleTx
	}
	return nil
}

// IsNil says whether a value is nil: as an interface, or what is in it.
func IsNil(value any) bool {
	if value == nil {
		return true
	}
	switch of := reflect.ValueOf(value); of.Kind() {
	case reflect.Pointer, reflect.Func, reflect.Map, reflect.Chan:
		return of.IsNil()
	default:
		return false
	}
}
